// Package neighbor contains loads with which one client can harm the other
// clients of a node: replies that it does not read, reads and scripts that take
// long, tens of thousands of subscriptions, and input before a login. Each is a
// [Load] that runs against a node for a while. In the meantime a [Victim] takes
// locks through the same node and measures how long it waits for each lock. A
// [Bystander] does what other clients do: it logs in, runs new scripts and
// receives messages.
//
// The loads use only the client port, and send only commands that every user
// may run. Package attack runs them as faults. test/bench measures by how much
// they slow a victim down.
package neighbor
