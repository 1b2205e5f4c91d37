package dashboard

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Clients is the answer of /api/v1/clients: the connections to all nodes, or to
// one of them.
type Clients struct {
	Node  string `json:"node"` // the node that answers
	Total int    `json:"total"`
	// Clients has the fields of CLIENT LIST for each connection, and the fields
	// node and commands.
	Clients []map[string]string `json:"clients"`
	// Silent contains the members that have not answered.
	Silent []string `json:"silent"`
}

// clientFilter selects connections. It is part of the query to other nodes.
type clientFilter struct {
	Find  string `json:"find"` // in lower case
	Count int    `json:"count"`
}

// match reports whether a connection is selected.
func (f clientFilter) match(client map[string]string) bool {
	return f.Find == "" || strings.Contains(strings.ToLower(
		strings.Join([]string{client["name"], client["addr"], client["user"], client["cmd"]}, " ")), f.Find)
}

// ownClients returns the connections to this node, newest first.
func (d *Dashboard) ownClients(f clientFilter) Clients {
	own := Clients{Node: d.cfg.Node.ID(), Clients: []map[string]string{}}
	lines := slices.Collect(strings.Lines(d.cfg.ClientList()))
	slices.Reverse(lines)
	for _, line := range lines {
		line = strings.TrimSuffix(line, "\n")
		client := map[string]string{"node": own.Node}
		for field := range strings.SplitSeq(line, " ") {
			name, value, _ := strings.Cut(field, "=")
			client[name] = value
		}
		if !f.match(client) {
			continue
		}
		if own.Total++; len(own.Clients) < f.Count {
			own.Clients = append(own.Clients, client)
		}
	}
	return own
}

// listClients answers /api/v1/clients.
func (d *Dashboard) listClients(r *http.Request) (any, error) {
	f := clientFilter{Find: strings.ToLower(r.FormValue("find"))}
	var err error
	if f.Count, err = number(r, "count", 200, 1000); err != nil {
		return nil, err
	}
	// The node refuses CLIENT LIST ID 0 if the user may not list clients.
	// Otherwise the reply is empty, because no client has the id 0.
	if err := d.read(r, func(ctx context.Context, c *connection) error {
		return c.run(ctx, func(ctx context.Context, conn *redis.Conn) error {
			return conn.Do(ctx, "CLIENT", "LIST", "ID", "0").Err()
		})
	}); err != nil {
		return nil, err
	}
	answer := Clients{Node: d.cfg.Node.ID(), Clients: []map[string]string{}}
	query, err := json.Marshal(f)
	if err != nil {
		return nil, err
	}
	own := func() Clients { return d.ownClients(f) }
	answer.Silent = gather(d, r, "clients "+string(query), own, func(part Clients) {
		answer.Total += part.Total
		answer.Clients = append(answer.Clients, part.Clients...)
	})
	age := func(client map[string]string) int {
		seconds, _ := strconv.Atoi(client["age"]) // every node writes the age as a number
		return seconds
	}
	slices.SortStableFunc(answer.Clients, func(a, b map[string]string) int {
		return cmp.Or(cmp.Compare(age(a), age(b)), cmp.Compare(a["node"], b["node"]))
	})
	answer.Clients = answer.Clients[:min(len(answer.Clients), f.Count)]
	return answer, nil
}
