package dashboard_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-kv/holdfast/test/testutil"
	"github.com/holdfast-kv/holdfast/verify/process"
)

var update = flag.Bool("update", false, "write the pictures of docs/dashboard.md")

// binary is the program under test.
var binary string

func TestMain(m *testing.M) { testutil.MainWithProgram(m, &binary) }

// browser starts Chromium, once for all tabs of a test, and returns the context
// of its first tab. Chromium ends with the test.
func browser(t *testing.T) context.Context {
	t.Helper()
	path := testutil.NeedProgram(t, testutil.RequireBrowser, "chromium")
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path),
		// Chromium does not run with its sandbox as root, and CI runs as root.
		chromedp.NoSandbox,
		chromedp.Flag("disable-dev-shm-usage", true),
		chromedp.WSURLReadTimeout(time.Minute),
	)
	ctx, cancel := chromedp.NewExecAllocator(context.WithoutCancel(t.Context()), options...)
	t.Cleanup(cancel)
	ctx, cancelTab := chromedp.NewContext(ctx)
	t.Cleanup(cancelTab)
	if err := chromedp.Run(ctx); err != nil {
		t.Fatalf("start chromium: %v", err)
	}
	return ctx
}

// pageLimit is how long a page may take until it shows what a test expects.
const pageLimit = time.Minute

// tab is a tab of a browser. It records errors of the pages.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu     sync.Mutex
	errors []string
}

// newTab opens a tab with a width and a height in pixels.
func newTab(t *testing.T, browser context.Context, width, height int64) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(browser)
	t.Cleanup(cancel)
	b := &tab{t: t, ctx: ctx}
	chromedp.ListenTarget(ctx, func(ev any) {
		b.mu.Lock()
		defer b.mu.Unlock()
		switch ev := ev.(type) {
		case *runtime.EventExceptionThrown:
			b.errors = append(b.errors, ev.ExceptionDetails.Error())
		case *log.EventEntryAdded:
			// A killed node refuses the requests of its pages, and a page without
			// a login gets 401.
			if ev.Entry.Level == log.LevelError && ev.Entry.Source != log.SourceNetwork {
				b.errors = append(b.errors, ev.Entry.Text)
			}
		}
	})
	// The first Run makes the tab, which ends with its context.
	if err := chromedp.Run(ctx); err != nil {
		t.Fatalf("open a tab: %v", err)
	}
	// A page without focus would be hidden, and a hidden page does not update
	// itself.
	b.run(chromedp.EmulateViewport(width, height), emulation.SetFocusEmulationEnabled(true))
	t.Cleanup(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, e := range b.errors {
			t.Errorf("error of a page: %s", e)
		}
	})
	return b
}

func (b *tab) run(actions ...chromedp.Action) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, testutil.WaitLimit)
	defer cancel()
	if err := chromedp.Run(ctx, actions...); err != nil {
		b.t.Fatal(err)
	}
}

// open loads a page of a node.
func (b *tab) open(n *process.Node, path string) {
	b.t.Helper()
	b.run(chromedp.Navigate("http://" + n.HTTP + path))
}

// eval returns the value of an expression in the page.
func eval[T any](b *tab, expression string) (value T) {
	b.t.Helper()
	b.run(chromedp.Evaluate(expression, &value))
	return value
}

// until waits until an expression in the page is true. It uses Evaluate,
// because the content security policy of the page forbids the function Poll of
// chromedp.
func (b *tab) until(expression string) {
	b.t.Helper()
	err := process.Poll(testutil.Within(b.t, pageLimit), expression, func() bool {
		var holds bool
		ctx, cancel := context.WithTimeout(b.ctx, 10*time.Second)
		defer cancel()
		// Evaluate may fail while the page is loading, so an error is not
		// final.
		err := chromedp.Run(ctx, chromedp.Evaluate("!!("+expression+")", &holds))
		return err == nil && holds
	})
	if err != nil {
		b.t.Fatalf("%v; the page shows\n%s", err, b.text())
	}
}

// text returns the text of the page.
func (b *tab) text() string {
	var text string
	ctx, cancel := context.WithTimeout(b.ctx, 10*time.Second)
	defer cancel()
	if err := chromedp.Run(ctx, chromedp.Evaluate("document.body?.innerText ?? ''", &text)); err != nil {
		return err.Error()
	}
	return text
}

// shows waits until the page shows a text.
func (b *tab) shows(text string) {
	b.t.Helper()
	b.until(fmt.Sprintf("document.querySelector('main').innerText.includes(%q)", text))
}

// dark sets the color scheme that the browser prefers.
func (b *tab) dark(dark bool) {
	b.t.Helper()
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	b.run(chromedp.ActionFunc(func(ctx context.Context) error {
		return emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{
			{Name: "prefers-color-scheme", Value: scheme},
		}).Do(ctx)
	}))
}

// picture writes the visible part of the page to docs/images, if the flag
// -update is set.
func (b *tab) picture(name string) {
	b.t.Helper()
	if !*update {
		return
	}
	var picture []byte
	b.run(chromedp.ActionFunc(func(ctx context.Context) (err error) {
		picture, err = page.CaptureScreenshot().WithFormat(page.CaptureScreenshotFormatWebp).WithQuality(75).Do(ctx)
		return err
	}))
	if err := os.WriteFile(filepath.Join("..", "..", "docs", "images", name+".webp"), picture, 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// fits checks that the page does not scroll horizontally.
func (b *tab) fits() {
	b.t.Helper()
	b.until("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
}

// client returns a client of a node.
func client(t *testing.T, n *process.Node) *redis.Client {
	t.Helper()
	c := process.NewClient(n.Clients, "", nil)
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// do sends a command. The command must succeed.
func do(t *testing.T, c *redis.Client, args ...any) {
	t.Helper()
	if err := c.Do(testutil.Within(t, testutil.WaitLimit), args...).Err(); err != nil {
		t.Fatalf("%v: %v", args, err)
	}
}

// wait makes a client wait for a lock, until the test ends.
func wait(t *testing.T, n *process.Node, key, owner string) {
	t.Helper()
	c, ended := process.NewClient(n.Clients, "", nil), make(chan struct{})
	go func() {
		defer close(ended)
		c.WithTimeout(time.Hour).Do(context.Background(), "LOCK", "ACQUIRE", key, owner, "PX", 60_000, "WAIT", 0)
	}()
	t.Cleanup(func() {
		if err := c.Close(); err != nil { // ends the command
			t.Error(err)
		}
		<-ended
	})
}

// start starts a cluster. password is the password of its default user, "" for
// none.
func start(t *testing.T, password string) *process.Cluster {
	t.Helper()
	return testutil.StartCluster(t, process.Config{Program: binary, Password: password})
}
