// Command chaos attacks clusters of the shipped binary and checks their
// histories. See make chaos. The attack itself is package verify/attack, which
// holdfast verify --local runs too. This package has the figures that a run of
// CI must reach.
package main
