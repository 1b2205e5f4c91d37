// Command controls checks that the checkers find bugs. make controls runs it.
// See docs/testing.md, "Negative controls".
//
// Each file NAME.patch in this directory puts one bug into the product. This
// command copies the tree and applies one patch after the other to the copy.
// For each patch, it builds the programs that the patch names from the copied
// source, and runs them. The expected checker of each program must report a
// violation.
//
// The program sim runs the schedules that test/sim/controls.go has for the bug.
// Then it runs the same schedules with the simulator of the unchanged tree,
// which must report no violation. For the other programs, make images, make
// chaos, make test and make compat are the runs without a bug.
//
// # Format of a patch
//
// The first line is a comment. It says what the patch breaks and which checker
// must find the bug. The next lines name the programs that run the control.
// Each line has a regular expression, which one of the reported violations must
// match:
//
//	# Every read is local, even those that must be linearizable: porcupine must find it.
//	# sim: ^linearizable
//	diff --git a/cluster/session.go b/cluster/session.go
//	...
//
// The programs are
//
//	sim                test/sim
//	images             test/images, with a holdfast that has the bug
//	chaos CLASS        one step of a class of faults of test/chaos, likewise
//	fsm TESTS          tests of ./fsm, by a regular expression for their names
//	cluster TESTS      tests of ./cluster
//	compat TESTS       tests of ./test/compat
//
// For the last three, the pattern must match a line that the tests print.
//
// The rest is the output of git diff -U2. The context is small, so that a patch
// still applies after changes nearby.
//
// # A patch that no longer applies
//
// TestPatches_Apply fails as soon as the source has changed at a place that a
// patch changes. To refresh the patch, commit the change and put the bug into
// the working tree by hand. Then run go run ./test/controls -refresh NAME,
// which replaces the patch and keeps its comment. Restore the source with git
// checkout.
package main
