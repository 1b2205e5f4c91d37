package recipes

import (
	"context"
	"fmt"
)

// Recipe is one pattern.
type Recipe struct {
	Name string // name of its page in docs/recipes and of its file in this folder
	Doc  string // description in one line
	// Demo runs the pattern with several clients for a few seconds. It fails if
	// the promise of the pattern is broken.
	Demo func(ctx context.Context, e *Env) error
}

// Run removes the keys that an earlier run has left, and runs the
// demonstration.
func (r Recipe) Run(ctx context.Context, e *Env) error {
	c := e.Client(0)
	keys := c.Scan(ctx, 0, "recipe:"+r.Name+"*", 1000).Iterator()
	for keys.Next(ctx) {
		if err := c.Del(ctx, keys.Val()).Err(); err != nil {
			return fmt.Errorf("remove %s: %w", keys.Val(), err)
		}
	}
	if err := keys.Err(); err != nil {
		return fmt.Errorf("look for keys of an earlier run: %w", err)
	}
	return r.Demo(ctx, e)
}

// All returns the recipes in the order of the documentation.
func All() []Recipe {
	return []Recipe{
		{"setnx", "A lock with SETNX and DEL", setnxDemo},
		{"getset", "A lock with SETNX, a time in its value, and GETSET to take it over", getsetDemo},
		{"token", "A lock with SET NX EX, a random token, and compare-and-delete", tokenDemo},
		{"renewal", "A lock that its owner renews for as long as the work takes", renewalDemo},
		{"fencing", "Fencing: a token that grows with every grant", fencingDemo},
		{"reentrant", "A lock that its owner may take again", reentrantDemo},
		{"readwrite", "A lock for many readers or one writer, and the upgrade from one to the other", readwriteDemo},
		{"hierarchy", "Locks on a tree: a node excludes its ancestors and descendants", hierarchyDemo},
		{"backoff", "Waiting for a lock, with a random delay that grows", backoffDemo},
		{"next", "Handing a lock over in the order of arrival", nextDemo},
		{"redlock", "Redlock clients: with the nodes of one cluster, and with three clusters", redlockDemo},
		{"idempotent", "Handling each message once", idempotentDemo},
		{"once", "Doing something once, for all clients", onceDemo},
		{"counter", "A counter that starts at a chosen value", counterDemo},
		{"ratelimit", "Limiting the number of calls in a window of time", ratelimitDemo},
		{"jobs", "A queue of delayed jobs, each done by one worker", jobsDemo},
		{"election", "Electing a leader", electionDemo},
		{"barrier", "Waiting until all have arrived", barrierDemo},
	}
}

// Find returns the recipe with the given name.
func Find(name string) (Recipe, error) {
	for _, r := range All() {
		if r.Name == name {
			return r, nil
		}
	}
	return Recipe{}, fmt.Errorf("no recipe %q", name)
}
