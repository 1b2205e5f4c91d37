// Package neighbor contains loads with which one client can harm the other
// clients of a node, for example by replies that it does not read, by reads and
// scripts that take long, by tens of thousands of subscriptions, or by input
// before a login. Each is a [Load] that runs against a node for a while. In the
// meantime, a [Victim] takes locks through the same node and measures how long
// it waits for each lock. A [Bystander] acts as other clients do: it logs in,
// runs new scripts and receives messages.
//
// The loads use only the client port, and send no administrative commands.
// Package attack runs them as faults. test/bench measures by how much they slow
// a victim down.
package neighbor
