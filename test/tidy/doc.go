// Package tidy tests the rules that the source itself must keep: which packages
// a package may import, what must be documented, and what must not occur. Each
// failure says how to correct it.
package tidy
