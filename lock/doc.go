// Package lock takes locks in a Holdfast cluster with the LOCK commands, over
// the Redis clients that Go programs already use.
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
// owner that is paused between a check and a write notices the loss too late. If a
// former owner must never change a resource, the resource itself must check the
// fencing token: see docs/locks.md.
//
// The client is a redis.UniversalClient of go-redis. NewNodes makes a client of
// several addresses.
//
// Unlike the other root packages of this module, lock and the packages below it
// are meant to be imported by other programs.
package lock
