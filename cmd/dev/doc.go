// Package dev runs a whole cluster on this machine for "holdfast dev", and
// carries out the commands that control its nodes.
package dev
