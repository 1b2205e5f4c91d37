package dashboard_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/holdfast-kv/holdfast/test/testutil"
	"github.com/holdfast-kv/holdfast/verify/process"
)

// hostile are names that are markup, or that a page might show as another text.
var hostile = []string{
	`<script>pwned()</script>`, `<img src=x onerror=pwned()>`, `"'><svg onload=pwned()>`, "two\nlines", `{{.CSRF}}`,
	"javascript:pwned()", "a\u202eb", `\`, `%00&key=other`,
}

// fill writes the data that the pages show.
func fill(t *testing.T, c *process.Cluster) {
	t.Helper()
	n := c.Nodes[0]
	r := client(t, n)
	for i, name := range []string{"deploy:web", "deploy:api", "billing:close", "report:daily"} {
		do(t, r, "LOCK", "ACQUIRE", name, fmt.Sprintf("worker-%d", i+1), "PX", 600_000+i*77_000, "META", "build 4711")
	}
	for i := range 3 {
		do(t, r, "LOCK", "ACQUIRE", "catalog", fmt.Sprintf("reader-%d", i+1), "PX", 300_000, "SHARED")
	}
	wait(t, c.Nodes[1], "deploy:web", "worker-8")
	wait(t, c.Nodes[2], "deploy:web", "worker-9")
	do(t, r, "SET", "user:1", "Ada", "EX", 1000)
	do(t, r, "HSET", "user:2", "name", "Grace", "lang", "COBOL")
	do(t, r, "RPUSH", "queue:mail", "a", "b", "c")
	do(t, r, "ZADD", "scores", 1, "x", 2, "y")
	do(t, r, "CONFIG", "SET", "slowlog-log-slower-than", 0)
	do(t, r, "SET", "user:3", "slow")
	do(t, r, "CONFIG", "SET", "slowlog-log-slower-than", 1_000_000)
}

// TestPages checks every page with real data, on a desktop and on a phone, in
// light and in dark.
func TestPages(t *testing.T) {
	b := browser(t)
	c := start(t, "")
	fill(t, c)
	n := c.Nodes[0]
	for _, p := range []struct {
		name, path string
		shows      []string
		until      string
	}{
		{"overview", "/", []string{"Healthy: tolerates 1 more failure", "n1", "n2", "n3", "leader", "Uptime"},
			"document.querySelectorAll('#nodes .card').length === 3"},
		{"traffic", "/traffic", []string{"Writes per second", "Data set"},
			"document.querySelectorAll('#charts canvas').length === 12 && Number(document.body.dataset.samples) > 1"},
		{"locks", "/locks", []string{"deploy:web", "worker-1", "report:daily", "shared"},
			"[...document.querySelectorAll('#locks tr')].some((r) => r.cells[0].innerText === 'deploy:web' && " +
				"r.cells[6].innerText === '2')"},
		{"lock", "/locks/lock?key=deploy:web", []string{"worker-1", "worker-8", "worker-9", "build 4711",
			"worker-1 holds the lock"}, "!document.getElementById('break').hidden"},
		{"shared lock", "/locks/lock?key=catalog", []string{"3 owners", "reader-2"}, "true"},
		{"keys", "/keys?prefix=user:", []string{"user:1", "Ada", "hash", "3 shown"},
			"document.querySelectorAll('#keys tbody tr').length === 3"},
		{"clients", "/clients", []string{"lock", "default"}, "true"},
		{"events", "/events", []string{"leads in term", "CONFIG SET", "SET user:3"}, "true"},
		{"login", "/login", []string{"Password"}, "true"},
	} {
		t.Run(p.name, func(t *testing.T) {
			look := func(b *tab) {
				t.Helper()
				for _, text := range p.shows {
					b.shows(text)
				}
				b.until(p.until)
				b.until("document.getElementById('message').hidden")
				b.fits()
				b.accessible()
			}
			node := n
			if p.name == "clients" { // the clients that wait are connected to the others
				node = c.Nodes[1]
			}
			desktop := newTab(t, b, 1200, 760)
			desktop.open(node, p.path)
			look(desktop)
			if slices.Contains([]string{"overview", "traffic", "locks", "lock"}, p.name) {
				desktop.picture("dashboard-" + p.name)
			}
			desktop.dark(true)
			desktop.until("getComputedStyle(document.body).backgroundColor === 'rgb(15, 19, 23)'")
			look(desktop)
			phone := newTab(t, b, 360, 740)
			phone.open(node, p.path)
			look(phone)
			if p.name == "overview" {
				phone.dark(true)
				phone.until("getComputedStyle(document.body).backgroundColor === 'rgb(15, 19, 23)'")
				phone.picture("dashboard-phone")
			}
		})
	}
}

// TestLeaderKill checks that an open page follows a failover without a reload.
func TestLeaderKill(t *testing.T) {
	b := browser(t)
	c := start(t, "")
	leader, err := c.Leader(testutil.Within(t, testutil.StartLimit))
	if err != nil {
		t.Fatal(err)
	}
	watcher := c.Running(leader)[0]
	page, events := newTab(t, b, 1200, 760), newTab(t, b, 1200, 760)
	page.open(watcher, "/")
	page.shows("Healthy: tolerates 1 more failure")
	page.until(fmt.Sprintf("document.querySelector('[data-node=%s].card').dataset.role === 'leader'", leader.ID))
	eval[bool](page, "window.loaded = true")
	events.open(watcher, "/events")
	events.shows(leader.ID + " leads in term")
	if err := leader.Kill(); err != nil {
		t.Fatal(err)
	}
	page.shows("Degraded: " + leader.ID + " is unreachable")
	page.shows("check that the process of " + leader.ID + " runs")
	page.until("document.querySelectorAll('.card[data-role=leader]').length === 1")
	page.until(fmt.Sprintf("document.querySelector('.card[data-role=leader]').dataset.node !== '%s'", leader.ID))
	page.picture("dashboard-degraded")
	events.shows(leader.ID + " does not answer")
	if err := leader.Start(); err != nil {
		t.Fatal(err)
	}
	page.shows("Healthy: tolerates 1 more failure")
	events.shows(leader.ID + " answers")
	if !eval[bool](page, "window.loaded === true") {
		t.Error("the page was loaded again")
	}
	// The page of a node that is killed says so, and recovers with the node.
	if err := watcher.Kill(); err != nil {
		t.Fatal(err)
	}
	page.shows(watcher.ID + " does not answer")
	if err := watcher.Start(); err != nil {
		t.Fatal(err)
	}
	page.until("document.body.dataset.live === 'true'")
	page.shows("Healthy: tolerates 1 more failure")
}

// TestHostileNames checks that names of keys, owners, clients and databases are
// shown as text, and that links lead to exactly the key that they name.
func TestHostileNames(t *testing.T) {
	b := browser(t)
	c := start(t, "")
	n := c.Nodes[0]
	r := client(t, n)
	for _, name := range hostile {
		do(t, r, "LOCK", "ACQUIRE", "lock:"+name, name, "PX", 600_000, "META", name)
		do(t, r, "SET", "key:"+name, name)
	}
	wait(t, n, "lock:"+hostile[0], hostile[1])
	do(t, r, "SET", "bytes:\xff\xfe<b>", "\xff<i>")
	do(t, r, "LOCK", "ACQUIRE", "lock:\xff", "\xfe", "PX", 600_000)
	clean := func(p *tab) {
		t.Helper()
		for _, problem := range eval[[]string](p, `(() => {
			const bad = [...document.querySelectorAll("main script, main img, main svg, main b, main i")]
				.map((e) => e.outerHTML);
			for (const a of document.querySelectorAll("a")) {
				if (a.origin !== location.origin) bad.push("link to " + a.href);
			}
			if (document.body.innerText.match(/[\u202e]/)) bad.push("a character that changes the direction of text");
			return bad;
		})()`) {
			t.Errorf("%s: %s", eval[string](p, "location.pathname"), problem)
		}
	}
	p := newTab(t, b, 1200, 760)
	p.open(n, "/locks")
	p.until(fmt.Sprintf("document.querySelectorAll('#locks tbody a').length === %d", len(hostile)+1))
	clean(p)
	links := eval[[]string](p, "[...document.querySelectorAll('#locks tbody a')].map((a) => a.getAttribute('href'))")
	for i, name := range append(hostile[:len(hostile):len(hostile)], "\xff") {
		link, err := url.Parse(links[i])
		if err != nil {
			t.Fatal(err)
		}
		if got := link.Query().Get("key"); name != "\xff" && got != "lock:"+name {
			t.Errorf("link to %q instead of %q", got, "lock:"+name)
		}
		p.open(n, links[i])
		p.until("!document.getElementById('break').hidden")
		clean(p)
	}
	p.open(n, "/locks?match="+url.QueryEscape(hostile[1]))
	p.until("document.querySelectorAll('#locks tbody a').length === 1")
	p.open(n, "/keys?prefix=key:")
	p.until(fmt.Sprintf("document.querySelectorAll('#keys tbody tr').length === %d", len(hostile)))
	clean(p)
	p.open(n, "/keys?prefix="+url.QueryEscape("bytes:"))
	p.until("document.querySelectorAll('#keys tbody tr').length === 1")
	clean(p)
	p.open(n, "/events?"+url.QueryEscape(hostile[0]))
	p.shows("leads in term")
	clean(p)
}

// TestBreak checks the login, the permission and the confirmation for breaking a
// lock, and that the break is in the events.
func TestBreak(t *testing.T) {
	b := browser(t)
	c := start(t, "sesame")
	n := c.Nodes[0]
	r := process.NewClient(n.Clients, "sesame", nil)
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	do(t, r, "ACL", "SETUSER", "reader", "on", ">pass", "~*", "+@read", "+lock|info", "+lock|list")
	do(t, r, "LOCK", "ACQUIRE", "deploy", "worker", "PX", 600_000)
	login := func(p *tab, user, password string) {
		t.Helper()
		p.run(chromedp.SetValue("[name=user]", user), chromedp.SetValue("[name=password]", password),
			chromedp.Submit("[name=password]"))
	}
	p := newTab(t, b, 1200, 760)
	p.open(n, "/locks")
	p.shows("log in as a user of the cluster")
	p.run(chromedp.Click("#message a"))
	p.until("location.pathname === '/login'")
	login(p, "default", "guess")
	p.shows("wrong user or password")
	login(p, "reader", "pass")
	p.until("location.pathname === '/locks'")
	p.shows("deploy")
	p.run(chromedp.Click("#locks tbody a"))
	p.until("!document.getElementById('break')?.hidden")
	p.run(chromedp.Click("#break"))
	p.shows("Take the lock away")
	p.run(chromedp.Click("main button"))
	p.shows("NOPERM")
	p.open(n, "/events")
	p.shows("Not shown without the permission")
	p.run(chromedp.Click("header button"))
	p.until("document.querySelector('header').innerText.includes('Log in')")
	p.open(n, "/login?next=/locks/break?key=deploy")
	login(p, "default", "sesame")
	p.shows("Take the lock away")
	p.run(chromedp.Click("main button"))
	p.until("location.pathname === '/locks/lock'")
	p.shows("the lock is free")
	p.open(n, "/events?kind=audit")
	p.shows("LOCK BREAK deploy")
	p.shows("login failed")
}

// TestManyLocks checks that the page of locks is usable with 100,000 locks.
func TestManyLocks(t *testing.T) {
	if testing.Short() {
		t.Skip("100,000 locks take long")
	}
	b := browser(t)
	c := start(t, "")
	n := c.Nodes[0]
	r := client(t, n)
	const locks, batch = 100_000, 2000
	for i := 0; i < locks; i += batch {
		p := r.Pipeline()
		for j := i; j < i+batch; j++ {
			p.Do(t.Context(), "LOCK", "ACQUIRE", fmt.Sprintf("job:%06d", j), fmt.Sprintf("owner-%d", j%1000), "PX",
				3_600_000)
		}
		if _, err := p.Exec(testutil.Within(t, testutil.WaitLimit)); err != nil {
			t.Fatal(err)
		}
	}
	p := newTab(t, b, 1200, 760)
	p.open(n, "/locks")
	p.until("document.querySelectorAll('#locks tbody a').length === 50")
	p.run(chromedp.Click("#more"))
	p.until("document.querySelectorAll('#locks tbody a').length === 100")
	// One request visits a part of the locks. The page says that it has not seen
	// all of them.
	p.open(n, "/locks?match=job:0*77&owner=owner-77")
	p.shows("job:000077")
	for _, query := range []string{"", "match=*99999*", "owner=none"} {
		begun := time.Now()
		res, err := http.Get("http://" + n.HTTP + "/api/v1/locks?" + query)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if took := time.Since(begun); res.StatusCode != http.StatusOK || took > 5*time.Second {
			t.Errorf("locks?%s: %d after %v", query, res.StatusCode, took)
		} else {
			t.Logf("locks?%s took %v", query, took)
		}
	}
}

// TestStream_Limit checks that open streams do not use up the connections of the
// port.
func TestStream_Limit(t *testing.T) {
	c := start(t, "")
	n := c.Nodes[0]
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	get := func() int {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.HTTP+"/api/v1/stream", nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { res.Body.Close() })
		return res.StatusCode
	}
	refused := 0
	for range 40 {
		if get() == http.StatusServiceUnavailable {
			refused++
		}
	}
	if refused != 8 {
		t.Errorf("%d of 40 streams were refused, want 8", refused)
	}
	cancel()
	ctx = t.Context()
	testutil.Eventually(t, "a stream after the others have ended", func() bool { return get() == http.StatusOK })
}
