package flags

import (
	"errors"
	"fmt"
	"net"
	"strconv"

	"github.com/spf13/cobra"
)

// AddrArg returns the address in the only argument of a command. The command
// also accepts the address as --addr. AddrArg returns "" if there is no
// argument, and an error if the argument and --addr are two different
// addresses.
func AddrArg(cmd *cobra.Command, args []string) (string, error) {
	if len(args) == 0 {
		return "", nil
	}
	if f := cmd.Flags().Lookup("addr"); f.Changed && f.Value.String() != args[0] {
		return "", fmt.Errorf("the argument %s and --addr %s are two addresses: give only one", args[0], f.Value)
	}
	return args[0], nil
}

// CheckAddr returns an error if addr is not of the form host:port with a fixed
// port.
func CheckAddr(addr string) error {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return errors.New("not of the form host:port")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("port %q is not a number from 1 to 65535", port)
	}
	return nil
}

// Loopback reports whether an address can be reached only from this machine.
func Loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
