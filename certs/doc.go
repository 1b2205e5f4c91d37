// Package certs loads the certificates of a node and reloads them when their files
// change, so that a renewed certificate needs no restart.
//
// The package is not a supported API.
package certs
