// Package flags contains code that the commands of the program share for their
// flags. It defines kinds of values, sets flags from the environment and from a
// configuration file, reads files with secrets, and suggests corrections for
// mistyped names.
package flags
