// Package resp hears clients: it speaks RESP2 and RESP3 on the client port,
// keeps what belongs to a connection (protocol, database, name, transaction
// being queued) and answers. What a command means is in package fsm, who may run
// it and how fresh is the Executor's concern.
//
// A connection's current pipeline becomes a group: all data commands up to a
// limit travel and run together. Commands about the connection and the node
// itself (the rows that sessionFamilies lists) run here, in their place in the
// order.
//
// The path of a byte: socket, Guard (limits, whole commands only), redcon
// (parsing), conn.serve (grouping), Executor, redcon's writer, socket.
package resp
