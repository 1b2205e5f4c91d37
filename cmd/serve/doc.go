// Package serve runs one node: it checks the flags, binds the ports, opens the
// node of package cluster, serves clients and the HTTP port, and stops all of
// them in order.
//
// The command and its flags are in options.go. The order in which the parts start
// and stop is in node.go.
package serve
