// Package lock acquires locks in a Holdfast cluster. It sends the LOCK commands
// over the Redis client that a Go program already uses.
//
//	held, err := lock.Acquire(ctx, client, "backup", lock.WithTTL(30*time.Second))
//	if err != nil {
//		return err
//	}
//	defer held.Release(context.WithoutCancel(ctx))
//	return work(held.Context(), held.Token())
//
// A lock is a lease: the owner holds it for the TTL, and Held renews it until
// Release. Held.Context is canceled when the lock is lost, or when the lease may
// have ended because no renewal was confirmed in time. The owner must then stop. An
// owner that is paused after it has checked the context may notice the loss too
// late. If a former owner must never change a resource, the resource itself must
// check the fencing token: see docs/locks.md.
//
// The client can be any redis.UniversalClient of go-redis (a redis.Ring only with
// WithWait(0)). NewNodes returns a client that uses several nodes.
//
// Unlike the other packages of this module, lock, lock/fence and
// lock/rueidisclient are meant to be imported by other programs.
package lock
