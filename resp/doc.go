// Package resp implements the client port. It speaks RESP2 and RESP3, keeps the
// state of each connection (protocol, database, name, queued transaction) and
// sends the replies. Package fsm implements the commands on data. An Executor
// decides on which node they are executed and how current their results are.
//
// The package is a part of the holdfast program. It is not a supported API, and
// may change in any commit.
//
// The commands on data of a client's pipeline become groups of a limited size,
// which an Executor runs one after another. The connection itself runs the
// connection commands, which are about the connection or the node
// (connectionFamilies lists them), in the order of the pipeline. Both kinds have
// their rows in one command table: see table.go.
//
// The bytes of a command pass through these parts: socket, guard.Conn (checks
// limits, passes only complete commands), redcon (parses), conn.serve (groups),
// Executor. The reply passes through output.Writer, guard.Conn and the socket.
package resp
