// Command chaos attacks clusters of the shipped binary and judges what came of
// it: make chaos. The attack itself is verify/attack, which holdfast verify
// --local runs too; here are the figures that a run of CI has to reach.
package main
