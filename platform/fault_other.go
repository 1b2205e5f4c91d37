//go:build !linux

package platform

import (
	"errors"
	"os"
)

// ErrNotLinux is the error of functions that need Linux.
var ErrNotLinux = errors.New("this system is not Linux")

// Processors is a set of processors. It is always empty.
type Processors []struct{}

// IsSet returns false.
func (Processors) IsSet(int) bool { return false }

// Set does nothing.
func (Processors) Set(int) {}

// Affinity returns ErrNotLinux.
func Affinity() (Processors, error) { return nil, ErrNotLinux }

// Pin returns ErrNotLinux.
func Pin(int, *Processors) error { return ErrNotLinux }

// OwnMounts returns ErrNotLinux.
func OwnMounts() (tid int, err error) { return 0, ErrNotLinux }

// Allocate returns ErrNotLinux.
func Allocate(*os.File, int64, int64) error { return ErrNotLinux }
