// Package tidy tests the rules that the source itself has to keep: what may
// import what, what must be documented, and what must not be there. Each rule
// says in its failure what to do.
package tidy
