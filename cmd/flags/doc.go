// Package flags contains what the commands of the program share about their
// flags: kinds of values, flags that the environment or a configuration file
// sets, files with secrets, and suggestions for mistyped names.
package flags
