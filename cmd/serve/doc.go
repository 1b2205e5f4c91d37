// Package serve runs one node: it checks the flags, binds the ports, opens the
// node of package cluster, serves clients and the HTTP port, and stops all of
// them in order.
//
// The command is in options.go, which has the flags too, and the order of start
// and stop is in node.go.
package serve
