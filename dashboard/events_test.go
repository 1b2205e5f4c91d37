package dashboard

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/cluster/health"
)

// members is a node of a cluster with three members. others contains the answers of
// the other two to queries, by id.
type members struct {
	fakeNode
	others map[string]any
}

func (m members) PeerHealth() (all []health.PeerHealth) {
	for _, id := range []string{"n1", "n2", "n3"} {
		all = append(all, health.PeerHealth{ID: id, Alive: true})
	}
	return all
}

func (m members) Reports(context.Context, string) map[string][]byte {
	answers := make(map[string][]byte)
	for id, a := range m.others {
		text, err := json.Marshal(a)
		if err != nil {
			panic(err) // a test with wrong data
		}
		answers[id] = text
	}
	return answers
}

// ask returns the answer of the API to a request.
func ask[T any](t *testing.T, url string) (answer T) {
	t.Helper()
	res, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", url, res.Status)
	}
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
		t.Fatal(err)
	}
	return answer
}

// TestEvents_OfAllNodes checks that an answer has the events of all nodes, and that
// it has one event for a change that several nodes have noticed. It also checks
// which users may see which events.
func TestEvents_OfAllNodes(t *testing.T) {
	events, now := &Events{}, time.Now()
	allowed := "" // commands that users may run
	_, server := open(t, port{open: true}, func(c *Config) {
		c.Events = events
		c.Permits = func(_ string, command ...string) bool {
			return strings.Contains(allowed, strings.Join(command[:2], " "))
		}
		c.Node = members{others: map[string]any{"n2": EventList{Node: "n2", Events: []Event{
			{ID: 7, Node: "n2", Time: now.Add(time.Second), Kind: KindCluster, Text: "n2 leads in term 4"},
			{ID: 6, Node: "n2", Time: now.Add(-time.Hour), Kind: KindLogin, Text: "login failed"},
			{ID: 5, Node: "n2", Time: now.Add(-2 * time.Hour), Kind: KindLock, Text: "the lease of a lock ended"},
		}}}}
	})
	audit := events.Audit(nil)
	audit.Info("administrative command", "command", "HOLDFAST BACKUP BEGIN")
	audit.Info("administrative command", "command", "HOLDFAST BACKUP READ 1 1048576")
	audit.Warn("login failed", "user", "ann")
	audit.Info("administrative command", "command", "CONFIG SET maxmemory 1")
	events.add(Event{Kind: KindCluster, Text: "n2 leads in term 4"})
	seen := func(query string) (all []string) {
		t.Helper()
		list := ask[EventList](t, server.URL+"/api/v1/events?"+query)
		if len(list.Silent) > 1 || query == "" && (len(list.Silent) != 1 || list.Silent[0] != "n3") {
			t.Errorf("%s: silent nodes %v, want n3", query, list.Silent)
		}
		for _, ev := range list.Events {
			if ev.Text == "" {
				t.Errorf("an event without text: %+v", ev)
			}
			if ev.Text == "n1 leads in term 0" { // noticed by the dashboard itself
				continue
			}
			all = append(all, fmt.Sprint(ev.Node, ev.Also, ev.Kind))
		}
		return all
	}
	check := func(query string, want string) {
		t.Helper()
		if got := strings.Join(seen(query), " "); got != want {
			t.Errorf("%q: events %s, want %s", query, got, want)
		}
	}
	leads := "n1[n2]cluster"
	check("", leads)
	check("node=n2", "n2[]cluster")
	check("node=n2&after=6", "n2[]cluster")
	check("node=n2&after=7", "")
	if hidden := ask[EventList](t, server.URL+"/api/v1/events").Hidden; len(hidden) != 5 {
		t.Errorf("hidden kinds: %v", hidden)
	}
	allowed = "ACL LOG, SLOWLOG GET, LOCK LIST"
	check("", leads+" n1[]audit n1[]login n1[]backup n2[]login")
	check("kind=login", "n1[]login n2[]login")
	allowed = "LOCK LIST, LOCK INFO"
	check("", leads+" n2[]lock")
	if res, err := http.Get(server.URL + "/api/v1/events?after=1"); err != nil || res.StatusCode != 400 {
		t.Errorf("after without a node: %v %v", res.Status, err)
	}
}

// TestEvents_ManyExpiries checks that the ends of many leases within a second
// cause few events, and that the next event has a field with the number of
// events that were left out.
func TestEvents_ManyExpiries(t *testing.T) {
	var e Events
	for i := range 1000 {
		e.LockExpired(0, "k", "o", uint64(i))
	}
	all, _ := e.since(0)
	if len(all) < expiredPerSecond || len(all) > 5*expiredPerSecond {
		t.Fatalf("%d events of 1000 expiries", len(all))
	}
	e.expiredAt = 0 // the next second
	e.LockExpired(0, "k", "o", 1001)
	all, _ = e.since(0)
	if last := all[len(all)-1]; last.Fields["not_listed_before"] == "" {
		t.Errorf("the last event does not say how many are missing: %+v", last)
	}
}

// TestClients_OfAllNodes checks that an answer has the connections to all nodes,
// newest first.
func TestClients_OfAllNodes(t *testing.T) {
	_, server := open(t, port{open: true}, func(c *Config) {
		c.ClientList = func() string { return "id=1 name=a age=9 commands=4\nid=2 name=b age=3\nid=3 name=bb age=2\n" }
		c.Node = members{others: map[string]any{"n2": Clients{Node: "n2", Total: 8, Clients: []map[string]string{
			{"node": "n2", "id": "1", "age": "5", "name": "c"},
		}}}}
	})
	for query, want := range map[string]string{
		"": "n1/3 n1/2 n2/1 n1/1 of 11", "count=2": "n1/3 n1/2 of 11",
		"node=n2": "n2/1 of 8", "node=n1&find=B": "n1/3 n1/2 of 2",
	} {
		list := ask[Clients](t, server.URL+"/api/v1/clients?"+query)
		got := ""
		for _, c := range list.Clients {
			got += c["node"] + "/" + c["id"] + " "
		}
		if got += fmt.Sprint("of ", list.Total); got != want {
			t.Errorf("%q: clients %s, want %s", query, got, want)
		}
	}
}
