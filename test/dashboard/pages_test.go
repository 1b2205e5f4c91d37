package dashboard_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-kv/holdfast/test/testutil"
	"github.com/holdfast-kv/holdfast/verify/process"
)

// hostile contains names that are markup, and names that a page might show
// incorrectly.
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
	do(t, r, "SET", "user:long", strings.Repeat("x", 101))
	do(t, r, "HSET", "user:2", "name", "Grace", "lang", "COBOL")
	do(t, r, "RPUSH", "queue:mail", "a", "b", "c")
	do(t, r, "ZADD", "scores", 1, "x", 2, "y")
	do(t, r, "LOCK", "ACQUIRE", "short", "worker-7", "PX", 1)
	do(t, r, "CONFIG", "SET", "slowlog-log-slower-than", 0)
	do(t, r, "SET", "user:3", "slow")
	do(t, r, "CONFIG", "SET", "slowlog-log-slower-than", 1_000_000)
}

// TestPages checks every page with real data: on a desktop with a light and
// with a dark theme, and on a phone.
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
		{"overview", "/", []string{"Healthy: tolerates 1 more failure", "n1", "n2", "n3", "leader", "Uptime",
			"0 entries", "feature version", "HTTP address", ", reserve "},
			"document.querySelectorAll('#nodes .card').length === 3 && " +
				"[...document.querySelectorAll('#map text')].filter((t) => / ms$/.test(t.textContent)).length === 3"},
		{"traffic", "/traffic", []string{"Writes per second", "Data set"},
			"document.querySelectorAll('#charts canvas').length === 12 && Number(document.body.dataset.samples) > 1"},
		{"locks", "/locks", []string{"deploy:web", "worker-1", "report:daily", "shared"},
			"[...document.querySelectorAll('#locks tr')].some((r) => r.cells[0].innerText === 'deploy:web' && " +
				"r.cells[6].innerText === '2')"},
		{"lock", "/locks/lock?key=deploy:web", []string{"worker-1", "worker-8", "worker-9", "build 4711",
			"worker-1 holds the lock", "1 grant", "still held"}, "document.querySelector('h1').innerText === " +
			"'Lock deploy:web' && document.querySelector('nav [aria-current]').innerText === 'Locks' && " +
			"new URL(document.querySelector('.account a').href).searchParams.get('next')" +
			".endsWith('?key=deploy:web') && !document.getElementById('break').hidden && " +
			"document.querySelectorAll('#line .waiting').length === 2"},
		{"shared lock", "/locks/lock?key=catalog", []string{"3 owners", "reader-2"}, "true"},
		{"keys", "/keys?prefix=user:", []string{"user:1", "Ada", "hash", "name=Grace, lang=COBOL", "x …", "4 shown"},
			"document.querySelectorAll('#keys tbody tr').length === 4"},
		{"clients", "/clients", []string{"lock", "default", "n1", "n2", "n3"}, "true"},
		{"events", "/events", []string{"leads in term", "CONFIG SET", "SET user:3", "the lease of a lock ended"},
			"document.getElementById('silent').hidden"},
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
			desktop := newTab(t, b, 1200, 760)
			desktop.open(n, p.path)
			look(desktop)
			if slices.Contains([]string{"overview", "locks", "lock"}, p.name) {
				desktop.picture("dashboard-" + p.name)
			}
			desktop.keyboard()
			desktop.dark(true)
			desktop.until("getComputedStyle(document.body).backgroundColor === 'rgb(15, 19, 23)'")
			look(desktop)
			phone := newTab(t, b, 360, 740)
			phone.open(n, p.path)
			look(phone)
			if p.name == "events" { // the table must not scroll horizontally
				phone.until("[...document.querySelectorAll('#events .preview')].every((e) => " +
					"e.getBoundingClientRect().right <= innerWidth)")
			}
			// WCAG requires that a page is usable at a width of 320 pixels,
			// which is a window of 1280 pixels at a zoom of 400 %.
			phone.run(chromedp.EmulateViewport(320, 740))
			phone.fits()
			phone.run(chromedp.EmulateViewport(360, 740))
			if p.name == "overview" {
				phone.dark(true)
				phone.until("getComputedStyle(document.body).backgroundColor === 'rgb(15, 19, 23)'")
				phone.picture("dashboard-phone")
			}
		})
	}
}

// TestEmpty checks what the pages say if a database is empty, and if nothing in it
// matches a filter.
func TestEmpty(t *testing.T) {
	b := browser(t)
	c := start(t, "")
	n := c.Nodes[0]
	p := newTab(t, b, 1200, 760)
	check := func(path, text string) {
		t.Helper()
		p.open(n, path)
		p.until(fmt.Sprintf("document.querySelector('main tbody')?.innerText.trim() === %q", text))
	}
	check("/locks", "no lock is held in this database")
	check("/keys", "this database has no key")
	do(t, client(t, n), "LOCK", "ACQUIRE", "deploy", "worker-1", "PX", 600_000)
	check("/locks?owner=worker-2", "no lock is held that matches")
	check("/locks?match=build", "no lock is held that matches")
	check("/locks?waited=1", "no lock is held that matches")
	check("/locks?db=1", "no lock is held in this database")
	check("/keys?prefix=b", "no key has this prefix")
}

// TestManyRows checks that pages do not draw many rows more often than needed.
// With many connections, the page Clients requests its data less often. The page
// Events draws its rows only when the events have changed.
func TestManyRows(t *testing.T) {
	b := browser(t)
	c := start(t, "")
	n := c.Nodes[0]
	const connections = 150
	for range connections {
		conn, err := net.Dial("tcp", n.Clients)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
	}
	p := newTab(t, b, 1200, 760)
	p.open(n, "/clients")
	p.until("/^[0-9]+ of [0-9]+ connections, refreshed every [7-9] s$/" +
		".test(document.getElementById('count').innerText)")
	p.open(n, "/clients?find=no-such-client")
	p.until("document.getElementById('count').innerText === '0 of 0 connections'")

	const requests = "performance.getEntriesByType('resource').filter((e) => e.name.includes('/api/v1/events')).length"
	p.open(n, "/events")
	p.shows("leads in term")
	// A new event makes the page draw all rows. The first events of a cluster
	// may come late, so the check is repeated.
	testutil.Eventually(t, "the page keeps rows that have not changed", func() bool {
		before := eval[int](p, "document.querySelectorAll('#events tbody tr').forEach((r) => { r.seen = true; }), "+
			requests)
		p.until(fmt.Sprintf("%s >= %d", requests, before+2))
		return eval[bool](p, "[...document.querySelectorAll('#events tbody tr')].every((r) => r.seen)")
	})
	do(t, client(t, n), "CONFIG", "SET", "maxmemory", "1gb")
	p.shows("CONFIG SET maxmemory")
}

// TestSlowLog checks that the slow log contains the commands of clients, and
// not the commands with which the dashboard reads its data.
func TestSlowLog(t *testing.T) {
	c := start(t, "")
	n := c.Nodes[0]
	r := client(t, n)
	do(t, r, "CONFIG", "SET", "slowlog-log-slower-than", 0)
	do(t, r, "SLOWLOG", "RESET")
	for _, path := range []string{"locks", "lock?key=a", "lock/history?key=a", "keys", "clients", "events"} {
		res, err := http.Get("http://" + n.HTTP + "/api/v1/" + path)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s", path, res.Status)
		}
	}
	do(t, r, "LOCK", "LIST")
	log, err := r.SlowLogGet(t.Context(), -1).Result()
	if err != nil {
		t.Fatal(err)
	}
	var seen []string
	for _, e := range log {
		// start sends INFO HOLDFAST to all nodes and waits at most a second
		// for a reply. A node may execute the command later, so the slow log
		// may contain it.
		if command := strings.Join(e.Args, " "); command != "info holdfast" {
			seen = append(seen, command)
		}
	}
	if want := []string{"LOCK LIST", "SLOWLOG RESET"}; !slices.Equal(seen, want) {
		t.Errorf("the slow log has %q, want %q", seen, want)
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
	page.shows("Check that the process of " + leader.ID + " runs")
	page.until("document.querySelectorAll('.card[data-role=leader]').length === 1")
	page.until(fmt.Sprintf("document.querySelector('.card[data-role=leader]').dataset.node !== '%s'", leader.ID))
	page.until(fmt.Sprintf(`/Last answer\n.* s ago/.test(document.querySelector('.card[data-node=%s]').innerText)`,
		leader.ID))
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
	// The page of a killed node shows that the node does not answer, and
	// recovers with the node.
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

// TestNoMajority checks what the pages show when the cluster has no leader.
// While a page waits for its data, it shows that it is loading. After that, it
// shows why it could not load the data.
func TestNoMajority(t *testing.T) {
	b := browser(t)
	c := start(t, "")
	n := c.Nodes[0]
	page := newTab(t, b, 1200, 760)
	page.open(n, "/")
	page.shows("Healthy: tolerates 1 more failure")
	for _, other := range c.Nodes[1:] {
		if err := other.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	page.shows("No leader in reach: writes through this node wait until it reaches a majority of the voters " +
		"(1 of 3 voters are reachable")
	page.shows("make a new cluster (holdfast recover)")
	for _, path := range []string{"/locks", "/keys"} {
		page.open(n, path)
		page.shows("Loading …")
		page.shows("Not loaded")
		page.until("/CLUSTERDOWN|leader/.test(document.getElementById('message').innerText)")
	}
	page.open(n, "/clients")
	page.shows("No answer from " + c.Nodes[1].ID + ", " + c.Nodes[2].ID)
}

// TestTraffic checks that each chart shows values of a real load, and that the
// page can change the time window.
func TestTraffic(t *testing.T) {
	b := browser(t)
	c := start(t, "")
	stop, ctx := make(chan struct{}), t.Context()
	var clients sync.WaitGroup
	for i, n := range c.Nodes {
		r := client(t, n)
		pause := time.NewTicker(time.Duration(2+3*i) * time.Millisecond)
		clients.Go(func() {
			defer pause.Stop()
			for j := 0; ; j++ {
				key := fmt.Sprint("job:", j%500)
				for _, args := range [][]any{
					{"SET", "data:" + key, strings.Repeat("x", 100)}, {"GET", "data:" + key}, {"PING"},
					{"LOCK", "ACQUIRE", key, n.ID, "PX", 1000}, {"LOCK", "RELEASE", key, n.ID},
				} {
					if err := r.Do(ctx, args...).Err(); err != nil && !errors.Is(err, redis.Nil) {
						t.Errorf("%v: %v", args, err)
						return
					}
				}
				select {
				case <-stop:
					return
				case <-pause.C:
				}
			}
		})
	}
	defer clients.Wait()
	defer close(stop)
	p := newTab(t, b, 1200, 760)
	p.open(c.Nodes[0], "/traffic")
	p.until("document.querySelectorAll('figure').length === 12 && Number(document.body.dataset.samples) > 6")
	p.until("[...document.querySelectorAll('figure .now')].every((e) => /: [0-9]/.test(e.textContent))")
	p.shows(c.Nodes[0].ID + " limit")
	p.picture("dashboard-traffic")
	p.run(chromedp.Click("[data-window='24h']"))
	p.shows("One sample every 5 minutes")
	p.run(chromedp.Click("[data-window='15m']"))
	p.until("Number(document.body.dataset.samples) > 6")
}

// TestTimeline checks the timeline of a lock with real grants: released, expired,
// broken and held ones, clients that wait, and a failover.
func TestTimeline(t *testing.T) {
	b := browser(t)
	c := start(t, "")
	leader, err := c.Leader(testutil.Within(t, testutil.StartLimit))
	if err != nil {
		t.Fatal(err)
	}
	n := c.Running(leader)[0]
	r := client(t, n)
	const key = "deploy:web"
	waits := func(owner string) {
		t.Helper()
		wait(t, n, key, owner)
		testutil.Eventually(t, owner+" waits", func() bool {
			info, err := r.Do(t.Context(), "LOCK", "INFO", key).Result()
			return err == nil && strings.Contains(fmt.Sprint(info), owner)
		})
	}
	owns := func(owner string) {
		t.Helper()
		testutil.Eventually(t, owner+" owns the lock", func() bool {
			return r.Do(t.Context(), "LOCK", "RENEW", key, owner, "PX", 60_000).Err() == nil
		})
	}
	do(t, r, "LOCK", "ACQUIRE", key, "worker-1", "PX", 700)
	waits("worker-2")
	owns("worker-2") // after the lease of worker-1
	waits("worker-3")
	do(t, r, "LOCK", "RELEASE", key, "worker-2")
	owns("worker-3")
	waits("worker-4")
	if err := leader.Kill(); err != nil {
		t.Fatal(err)
	}
	token, err := r.Do(testutil.Within(t, testutil.WaitLimit), "LOCK", "TOKEN", key).Int64()
	if err != nil {
		t.Fatal(err)
	}
	do(t, r, "LOCK", "BREAK", key, token)
	owns("worker-4")
	waits("worker-5")
	p := newTab(t, b, 1200, 900)
	p.open(n, "/locks/lock?key="+key)
	for _, class := range []string{"released", "expired", "broken", "held", "waiting", "failover"} {
		p.until("document.querySelector('#line ." + class + "')")
	}
	p.shows("4 grants, 1 failover")
	p.until("document.querySelectorAll('#past tbody tr').length === 4")
	p.fits()
	p.accessible()
	p.run(chromedp.ScrollIntoView("#line"))
	p.picture("dashboard-timeline")
	// The page shows a change without a reload.
	do(t, r, "LOCK", "RELEASE", key, "worker-4")
	p.shows("5 grants")
	p.dark(true)
	p.until("getComputedStyle(document.body).backgroundColor === 'rgb(15, 19, 23)'")
	p.accessible()
}

// TestHostileNames checks that keys, owners, texts of META and values are shown
// as text, and that links lead to exactly the key that they name.
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
				.filter((e) => !e.matches("#line > svg")).map((e) => e.outerHTML);
			for (const e of document.querySelectorAll("#line svg *")) {
				if (!["line", "text", "rect", "title"].includes(e.tagName)) bad.push("in the drawing: " + e.outerHTML);
				for (const a of e.attributes) if (/^on|href|style/.test(a.name)) bad.push("in the drawing: " + e.outerHTML);
			}
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
		p.until("!document.getElementById('break').hidden && document.querySelector('#line .grant')")
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
	// A cluster without a password accepts any password.
	p.open(n, "/login")
	p.run(chromedp.SetValue("[name=user]", "default"), chromedp.Submit("[name=user]"))
	p.until("location.pathname === '/'")
	for _, name := range hostile {
		p.open(n, "/locks/break?key="+url.QueryEscape("lock:"+name))
		p.shows("Take the lock away")
		clean(p)
	}
}

// TestBreak breaks a lock in the dashboard. It checks the login, the
// permission, the confirmation, and that the page Events shows the break.
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
	do(t, r, "CONFIG", "SET", "lock-delay", "deploy 600000")
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
	p.shows("no client gets the lock for another 9 min")
	p.open(n, "/events?kind=audit")
	p.shows("LOCK BREAK deploy")
	p.open(n, "/events?kind=login")
	p.shows("login failed")
}

// TestLogin_SurvivesOutage checks that a login remains valid after an outage in
// which requests with this login failed.
func TestLogin_SurvivesOutage(t *testing.T) {
	c := start(t, "sesame")
	n := c.Nodes[0]
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	user := &http.Client{Jar: jar}
	res, err := user.PostForm("http://"+n.HTTP+"/login", url.Values{"user": {"default"}, "password": {"sesame"}})
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	get := func() int {
		res, err := user.Get("http://" + n.HTTP + "/api/v1/locks")
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		return res.StatusCode
	}
	if code := get(); code != http.StatusOK {
		t.Fatalf("locks after the login: %d", code)
	}
	for _, other := range c.Nodes[1:] {
		if err := other.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	// Several requests use the same login, as those of open pages do.
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			if code := get(); code != http.StatusServiceUnavailable {
				t.Errorf("locks without a majority: %d", code)
			}
		})
	}
	wg.Wait()
	for _, other := range c.Nodes[1:] {
		if err := other.Start(); err != nil {
			t.Fatal(err)
		}
	}
	testutil.Eventually(t, "the login works again", func() bool { return get() == http.StatusOK })
}

// TestManyLocks checks that the page of locks is usable with 100,000 locks that were
// taken with SET NX.
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
			p.Do(t.Context(), "SET", fmt.Sprintf("job:%06d", j), fmt.Sprintf("owner-%d", j%1000), "NX", "PX",
				3_600_000)
		}
		if _, err := p.Exec(testutil.Within(t, testutil.WaitLimit)); err != nil {
			t.Fatal(err)
		}
	}
	p := newTab(t, b, 1200, 760)
	p.open(n, "/locks")
	p.until("document.querySelectorAll('#locks tbody a').length === 50")
	p.shows("at n1") // the client of the lock, which the page gets from the history of locks
	p.run(chromedp.Click("#more"))
	p.until("document.querySelectorAll('#locks tbody a').length === 100")
	p.open(n, "/locks?match=job:0*77&owner=owner-77")
	p.shows("job:000077")
	p.open(n, "/locks?match=job:099999")
	p.shows("job:099999")
	p.shows("1 shown")
	p.until("document.getElementById('stop').hidden && document.getElementById('more').hidden")
	p.open(n, "/locks?owner=nobody")
	p.shows("no lock is held that matches")
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

// TestPlainLock checks the page of a lock that was taken with SET NX. Like the
// table of locks, this page shows since when the lock has been held, and by
// which client.
func TestPlainLock(t *testing.T) {
	b := browser(t)
	c := start(t, "")
	n := c.Nodes[0]
	do(t, client(t, n), "SET", "job", "owner-1", "NX", "PX", 3_600_000)
	p := newTab(t, b, 1200, 760)
	p.open(n, "/locks")
	p.until("/^client [0-9]+ at n1$/.test(document.querySelector('#locks tbody tr')?.cells[7]?.innerText)")
	p.open(n, "/locks/lock?key=job")
	p.until("/\\nHeld\\n[0-9].*\\n(.*\\n)*Client\\nclient [0-9]+ at n1\\n/" +
		".test(document.getElementById('lock').innerText)")
}

// TestLongKeys checks that the API divides the list of keys among several
// responses if the names do not fit into one response.
func TestLongKeys(t *testing.T) {
	c := start(t, "")
	r := client(t, c.Nodes[0])
	for i := range 30 {
		do(t, r, "SET", fmt.Sprint(i, strings.Repeat("k", 400<<10)), "x")
	}
	for _, prefix := range []string{"", "2"} {
		keys := make(map[string]bool)
		for cursor := ""; cursor != "0"; {
			var answer struct {
				Keys   []struct{ Key string }
				Cursor string
			}
			res, err := http.Get("http://" + c.Nodes[0].HTTP + "/api/v1/keys?prefix=" + prefix + "&cursor=" + cursor)
			if err != nil {
				t.Fatal(err)
			}
			err = json.NewDecoder(res.Body).Decode(&answer)
			res.Body.Close()
			if err != nil || res.StatusCode != http.StatusOK {
				t.Fatalf("prefix %q: %s, %v", prefix, res.Status, err)
			}
			for _, k := range answer.Keys {
				keys[k.Key] = true
			}
			cursor = answer.Cursor
		}
		if want := map[string]int{"": 30, "2": 11}[prefix]; len(keys) != want {
			t.Errorf("prefix %q: %d keys, want %d", prefix, len(keys), want)
		}
	}
}

// TestStream_Limit checks that one address can have only 16 event streams at a
// time, so that it cannot use up all connections of the port.
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
	if refused != 24 {
		t.Errorf("%d of 40 streams of one address were refused, want 24", refused)
	}
	cancel()
	ctx = t.Context()
	testutil.Eventually(t, "a stream after the others have ended", func() bool { return get() == http.StatusOK })
}
