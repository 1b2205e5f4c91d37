package resp

import (
	"time"

	"github.com/holdfast-kv/holdfast/cluster/yield"
)

// busy is the time for which a connection has run commands that wait for
// nothing, since it last yielded: commands about the connection or the node,
// and commands that were refused. A client can send such commands without end,
// and the connection then never waits. Commands about data wait for the cluster.
type busy time.Duration

// refusalTime is an estimate of the time that it takes to refuse a command.
const refusalTime = busy(2 * time.Microsecond)

// yield lets other connections in if this one has been busy for long.
func (b *busy) yield() {
	if *b >= busy(yield.Every) {
		*b = 0
		yield.Now()
	}
}
