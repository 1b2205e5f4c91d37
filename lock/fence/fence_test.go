package fence_test

import (
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/holdfast-kv/holdfast/lock/fence"
)

// request sends a request with a token and returns the HTTP status.
func request(t *testing.T, h http.Handler, path, token string) int {
	t.Helper()
	r := httptest.NewRequest(http.MethodPut, path, strings.NewReader("x"))
	if token != "" {
		r.Header.Set(fence.Header, token)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code
}

func TestHandler(t *testing.T) {
	calls := 0
	h := fence.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { calls++ }),
		func(r *http.Request) string { return r.URL.Path })
	for i, step := range []struct {
		path, token string
		want        int
	}{
		{"/a", "", http.StatusPreconditionRequired},
		{"/a", "x", http.StatusPreconditionRequired},
		{"/a", "-1", http.StatusPreconditionRequired},
		{"/a", "7", http.StatusOK},
		{"/a", "7", http.StatusOK}, // the same owner again
		{"/a", "9", http.StatusOK},
		{"/a", "8", http.StatusPreconditionFailed},
		{"/b", "8", http.StatusOK}, // another resource
	} {
		if got := request(t, h, step.path, step.token); got != step.want {
			t.Errorf("step %d: status %d, want %d", i, got, step.want)
		}
	}
	if calls != 4 {
		t.Errorf("%d requests reached the handler, want 4", calls)
	}
}

// TestHandler_OneAtATime checks that the requests of two owners for one
// resource do not run at the same time.
func TestHandler_OneAtATime(t *testing.T) {
	var running atomic.Int32
	entered, asked, proceed := make(chan struct{}, 2), make(chan struct{}, 2), make(chan struct{})
	h := fence.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if running.Add(1) > 1 {
			t.Error("two requests for one resource run at the same time, want one after the other")
		}
		entered <- struct{}{}
		<-proceed
		for range 100 {
			runtime.Gosched() // let the other request come here, if Handler does not prevent it
		}
		running.Add(-1)
	}), func(*http.Request) string {
		asked <- struct{}{}
		return "one"
	})
	done := make(chan int, 2)
	for _, token := range []string{"1", "2"} {
		go func() { done <- request(t, h, "/", token) }()
		<-asked
		if token == "1" {
			<-entered
		}
	}
	close(proceed)
	for range 2 {
		if code := <-done; code != http.StatusOK {
			t.Errorf("a request got the status %d, want 200", code)
		}
	}
}
