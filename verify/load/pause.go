package load

import (
	"context"
	"fmt"
	"time"
)

// begins records that a client sends a blocking command for a queue. If the
// load is paused, it first waits for the end of the pause.
func (l *Load) begins(queue string) {
	l.pause.RLock()
	defer l.pause.RUnlock()
	l.mu.Lock()
	l.waiting[queue]++
	l.mu.Unlock()
}

// ends records that a blocking command has ended.
func (l *Load) ends(queue string) {
	l.mu.Lock()
	if l.waiting[queue]--; l.waiting[queue] == 0 {
		delete(l.waiting, queue)
	}
	l.mu.Unlock()
}

// Pause waits until no command of the load can change anything, and lets the
// clients send no command until resume is called. Blocking commands stay in
// flight, and the queues that they wait for are empty. Subscribers continue.
// Pause gives up when ctx is done. A command whose outcome is unknown may still
// be executed.
func (l *Load) Pause(ctx context.Context) (resume func(), err error) {
	l.pause.Lock()
	for {
		queue, err := l.filled(ctx)
		if err == nil && queue == "" {
			return l.pause.Unlock, nil
		}
		if !Sleep(ctx, 20*time.Millisecond) {
			l.pause.Unlock()
			return nil, fmt.Errorf("pause the load: a client waits for an element of the queue %q, which has "+
				"elements or cannot be read: %w", queue, context.Cause(ctx))
		}
	}
}

// filled returns a queue that has elements while a client waits for an element of
// it, or "" if there is no such queue. It also returns a queue that it could not
// check.
func (l *Load) filled(ctx context.Context) (queue string, err error) {
	l.mu.Lock()
	var queues []string
	for queue := range l.waiting {
		queues = append(queues, queue)
	}
	l.mu.Unlock()
	for i, queue := range queues {
		v, err := l.once(ctx, l.cfg.Addrs[i%len(l.cfg.Addrs)], time.Second, "EXISTS", queue)
		if err != nil || v.Err != "" || v.Int != 0 {
			return queue, err
		}
	}
	return "", nil
}
