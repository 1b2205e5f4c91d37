// Package terminal prints tables and the progress of transfers, and defines the
// type of the exit codes of commands.
package terminal
