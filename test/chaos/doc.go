// Command chaos attacks clusters of the shipped binary and checks the histories
// of their clients. make chaos runs it. Package verify/attack makes the attack;
// holdfast verify --local uses the same package. This package defines the
// figures that a run with -figures must reach.
package main
