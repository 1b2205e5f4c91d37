package terminal

import "fmt"

// ExitCode is an error whose message has already been printed. Its value is the
// exit code of the program.
type ExitCode int

func (c ExitCode) Error() string { return fmt.Sprintf("exit %d", int(c)) }
