package lock

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Nodes is a Client of several nodes of one cluster. It sends each command to
// the node that answered last. If that node does not answer, Nodes tries the
// other nodes, because every node of a Holdfast cluster serves every command.
// The cluster may execute a command twice. So use Nodes only for commands that
// are safe to repeat, such as LOCK ACQUIRE, LOCK RENEW and LOCK RELEASE.
type Nodes struct {
	clients []*redis.Client
	current atomic.Int64
}

// NewNodes returns a client of the nodes at the addresses. It uses all options of
// opt except Addr, MaxRetries and ContextTimeoutEnabled. If a node hangs, a
// command waits for the reply until the read timeout, but not after the end of its
// context. Nodes then uses another node. The caller must call Close.
func NewNodes(addrs []string, opt redis.Options) (*Nodes, error) {
	if len(addrs) == 0 {
		return nil, errors.New("lock: no node addresses")
	}
	n := &Nodes{}
	for _, addr := range addrs {
		o := opt
		o.Addr, o.MaxRetries, o.ContextTimeoutEnabled = addr, -1, true
		n.clients = append(n.clients, redis.NewClient(&o))
	}
	return n, nil
}

// Do implements Client.
func (n *Nodes) Do(ctx context.Context, args ...any) *redis.Cmd {
	for range len(n.clients) - 1 {
		cmd := n.DoOnce(ctx, args...)
		if Ended(ctx) || !Elsewhere(cmd.Err()) {
			return cmd
		}
	}
	return n.DoOnce(ctx, args...)
}

// Ended reports whether ctx is canceled or its deadline has passed. The timer of a
// context fires after its deadline, so a read with the same deadline may fail
// before ctx.Err returns an error.
func Ended(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(deadline)
}

// DoOnce implements Repeater. If ctx has ended before the call, the error says
// nothing about the node, so the next command goes to the same node.
func (n *Nodes) DoOnce(ctx context.Context, args ...any) *redis.Cmd {
	at := n.current.Load()
	tried := !Ended(ctx)
	cmd := n.clients[at].Do(ctx, args...)
	if tried && Elsewhere(cmd.Err()) && !errors.Is(ctx.Err(), context.Canceled) {
		n.current.CompareAndSwap(at, (at+1)%int64(len(n.clients)))
	}
	return cmd
}

// Elsewhere reports whether another node may be able to answer a command that
// failed with err. Examples are a connection error, and the error of a node
// that knows no leader.
func Elsewhere(err error) bool {
	var reply redis.Error
	return err != nil && !errors.Is(err, redis.Nil) && (!errors.As(err, &reply) || transient(err))
}

// Dedicated implements Dedicator.
func (n *Nodes) Dedicated(_ context.Context, _ string, wait time.Duration) (Dedicated, error) {
	return ownConnection(n.clients[n.current.Load()], wait), nil
}

// Close closes the connections to all nodes.
func (n *Nodes) Close() error {
	var all []error
	for _, c := range n.clients {
		if err := c.Close(); err != nil {
			all = append(all, fmt.Errorf("close the client of %s: %w", c.Options().Addr, err))
		}
	}
	return errors.Join(all...)
}
