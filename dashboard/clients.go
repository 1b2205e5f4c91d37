package dashboard

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Clients is the answer of /api/v1/clients: the connections to the node that
// answers.
type Clients struct {
	Node    string              `json:"node"`
	Total   int                 `json:"total"`
	Clients []map[string]string `json:"clients"` // fields of CLIENT LIST
}

// listClients answers /api/v1/clients.
func (d *Dashboard) listClients(r *http.Request) (any, error) {
	count, err := number(r, "count", 200, 1000)
	if err != nil {
		return nil, err
	}
	answer := Clients{Node: d.cfg.Node.ID(), Clients: []map[string]string{}}
	err = d.read(r, func(ctx context.Context, c *connection) error {
		return c.run(ctx, func(ctx context.Context, conn *redis.Conn) error {
			text, err := conn.Do(ctx, "CLIENT", "LIST").Text()
			if err != nil {
				return err
			}
			find := strings.ToLower(r.FormValue("find"))
			lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
			slices.Reverse(lines) // newest first
			for _, line := range lines {
				client := make(map[string]string)
				for field := range strings.SplitSeq(line, " ") {
					name, value, _ := strings.Cut(field, "=")
					client[name] = value
				}
				if find != "" && !strings.Contains(strings.ToLower(client["name"]+" "+client["addr"]+" "+
					client["user"]+" "+client["cmd"]), find) {
					continue
				}
				if answer.Total++; len(answer.Clients) < count {
					answer.Clients = append(answer.Clients, client)
				}
			}
			return nil
		})
	})
	return answer, err
}
