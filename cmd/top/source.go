package top

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-kv/holdfast/cluster"
	"github.com/holdfast-kv/holdfast/cluster/verdict"
	"github.com/holdfast-kv/holdfast/lock/listing"
	"github.com/holdfast-kv/holdfast/verify/load"
)

const (
	statusLimit = 3 * time.Second // bounds a request for the status of all nodes
	detailLimit = time.Second     // bounds a search for locks, the requests for loads, and a request for the history
	lockPage    = 1000            // maximum number of locks that a request returns
	lockPages   = 20              // maximum number of requests for the further pages of a list
	mostLocks   = 1000            // maximum number of locks that are shown
	// The source asks for the locks again after lockRest times the duration of the
	// last search, and shows the same locks until then. After an error, it waits no
	// longer than errorRest.
	lockRest  = 20
	errorRest = 5 * time.Second
)

// question is a request of source.look to the cluster.
type question struct {
	locks  bool
	filter string // text that the keys contain, or owner:NAME
}

// seen is the result of source.look.
type seen struct {
	at      time.Time
	from    string // address of the node that answered
	err     error  // set if no node answered
	nodes   []cluster.NodeStatus
	verdict verdict.Verdict
	load    map[string]nodeLoad // by the id of the node

	question question
	locks    []listing.Lock
	more     bool  // the cluster has locks that are not in the field locks
	lockErr  error // set if the locks or their history could not be read
}

// nodeLoad contains numbers about the clients of a node, from the reply to INFO.
type nodeLoad struct{ ops, clients int64 }

// source sends requests to the nodes of a cluster. It keeps a connection to each
// node that it has asked.
type source struct {
	login load.Login
	db    int

	addrs   []string // the first one is the address that answered most recently
	clients map[string]*redis.Client

	last seen          // result of the last look that requested the locks
	took time.Duration // duration of the last request for locks

	origins   listing.Origins
	noHistory bool // the user may not read the history
}

func newSource(addrs []string, login load.Login, db int) *source {
	return &source{login: login, db: db, addrs: slices.Clone(addrs), clients: make(map[string]*redis.Client)}
}

func (s *source) close() error {
	var all []error
	for _, c := range s.clients {
		all = append(all, c.Close())
	}
	return errors.Join(all...)
}

func (s *source) client(addr string) *redis.Client {
	if c := s.clients[addr]; c != nil {
		return c
	}
	c := redis.NewClient(&redis.Options{
		Addr: addr, Username: s.login.User, Password: s.login.Password, TLSConfig: s.login.TLS, DB: s.db,
		MaxRetries: -1, DialTimeout: time.Second, DialerRetries: 1, ContextTimeoutEnabled: true,
		DisableIdentity: true, PoolSize: 2,
	})
	s.clients[addr] = c
	return c
}

// look asks the cluster once. It first asks the node that answered most
// recently. If that node does not answer, it asks the others, one after the
// other.
func (s *source) look(ctx context.Context, q question) seen {
	result := seen{question: q}
	for _, addr := range s.addrs {
		nodes, err := s.status(ctx, addr)
		if err != nil {
			result.err = errors.Join(result.err, fmt.Errorf("%s: %w", addr, err))
			continue
		}
		result.err, result.from, result.nodes, result.verdict = nil, addr, nodes, verdict.Assess(nodes)
		s.learn(addr, nodes)
		break
	}
	result.at = time.Now()
	if result.err != nil {
		return result
	}
	result.load = s.loads(ctx, result.nodes)
	if !q.locks {
		return result
	}
	rest := lockRest * s.took
	if s.last.lockErr != nil {
		rest = min(rest, errorRest)
	}
	if s.last.question == q && time.Since(s.last.at) < rest {
		result.locks, result.more, result.lockErr = s.last.locks, s.last.more, s.last.lockErr
		return result
	}
	begun := time.Now()
	result.locks, result.more, result.lockErr = s.locks(ctx, result.from, q.filter)
	s.took = time.Since(begun)
	if err := s.addHistory(ctx, result.from, result.locks); err != nil && result.lockErr == nil {
		result.lockErr = err
	}
	s.last = result
	return result
}

// addHistory adds fields from the history of a node to the locks that were not
// acquired with LOCK ACQUIRE. If the node refuses or does not answer in time,
// addHistory returns no error and leaves the locks whose history it has not read
// without these fields, because the list is useful without them too.
func (s *source) addHistory(ctx context.Context, addr string, all []listing.Lock) error {
	if s.noHistory {
		return nil
	}
	return s.origins.Add(listing.Scope{}, all, func(keys []string) ([]any, error) {
		ctx, cancel := context.WithTimeout(ctx, detailLimit)
		defer cancel()
		replies, err := listing.AskHistory(ctx, s.client(addr), keys)
		s.noHistory = err != nil && strings.HasPrefix(err.Error(), "NOPERM")
		return replies, nil
	})
}

// learn moves addr, which has answered, to the front of the list, and adds the
// addresses of the other nodes.
func (s *source) learn(addr string, nodes []cluster.NodeStatus) {
	for _, n := range nodes {
		if n.ClientAddr != "" && !slices.Contains(s.addrs, n.ClientAddr) {
			s.addrs = append(s.addrs, n.ClientAddr)
		}
	}
	i := slices.Index(s.addrs, addr)
	s.addrs = append(append([]string{addr}, s.addrs[:i]...), s.addrs[i+1:]...)
}

func (s *source) status(ctx context.Context, addr string) ([]cluster.NodeStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, statusLimit)
	defer cancel()
	text, err := s.client(addr).Do(ctx, "HOLDFAST", "STATUS").Text()
	if err != nil {
		if strings.HasPrefix(err.Error(), "NOAUTH") {
			err = fmt.Errorf("%w (set --password-file, and --user if it is not the default user)", err)
		}
		return nil, err
	}
	var nodes []cluster.NodeStatus
	if err := json.Unmarshal([]byte(text), &nodes); err != nil {
		return nil, fmt.Errorf("status: %w", err)
	}
	return nodes, nil
}

// loads asks all reachable nodes for their load, at the same time. The result does
// not contain nodes that do not answer.
func (s *source) loads(ctx context.Context, nodes []cluster.NodeStatus) map[string]nodeLoad {
	ctx, cancel := context.WithTimeout(ctx, detailLimit)
	defer cancel()
	var wg sync.WaitGroup
	var mu sync.Mutex // guards all
	all := make(map[string]nodeLoad)
	for _, n := range nodes {
		if !n.Reachable || n.ClientAddr == "" {
			continue
		}
		c := s.client(n.ClientAddr)
		wg.Go(func() {
			text, err := c.Do(ctx, "INFO", "clients", "stats").Text()
			if err != nil {
				return // the status says whether the node is reachable
			}
			mu.Lock()
			defer mu.Unlock()
			all[n.ID] = nodeLoad{infoField(text, "instantaneous_ops_per_sec"), infoField(text, "connected_clients")}
		})
	}
	wg.Wait()
	return all
}

// infoField returns a number of a reply to INFO.
func infoField(text, name string) int64 {
	_, rest, _ := strings.Cut(text, "\n"+name+":")
	value, _, _ := strings.Cut(rest, "\r")
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// locks returns the locks that match a filter: first the locks for which clients
// wait, those with the most waiting clients first, and then the other locks, the
// oldest grant first.
func (s *source) locks(ctx context.Context, addr, filter string) (all []listing.Lock, more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, detailLimit)
	defer cancel()
	q := listing.Query{Count: lockPage}
	if owner, found := strings.CutPrefix(filter, "owner:"); found {
		q.Owner = owner
	} else if filter != "" {
		q.Match = "*" + listing.EscapePattern(filter) + "*"
	}
	waited := make(map[string]bool)
	for _, q.Waited = range []bool{true, false} {
		cursor := "0"
		for page := 0; ; page++ {
			found, next, err := listing.List(ctx, s.client(addr), q, cursor)
			if err != nil {
				return all, true, err
			}
			for _, l := range found {
				key := l.Text("key")
				if q.Waited {
					waited[key] = true
				} else if waited[key] {
					continue
				}
				all = append(all, l)
			}
			if cursor = next; cursor == "0" {
				break
			}
			if page == lockPages || len(all) >= mostLocks {
				more = true
				break
			}
		}
	}
	return all[:min(len(all), mostLocks)], more || len(all) > mostLocks, nil
}
