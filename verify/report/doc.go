// Package report draws what came of a verification as one HTML page that needs
// nothing else: the verdict, what was checked, which faults were injected and
// seen, and of each episode who held which lock when, with the faults as bands
// across and the violations marked.
package report
