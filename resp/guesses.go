package resp

import (
	"net"
	"sync"
	"time"
)

// guesses counts wrong passwords by address: who is made to wait on one connection
// must not get around it by opening another for each guess.
type guesses struct {
	mu sync.Mutex
	by map[string]*guesser
}

type guesser struct {
	count int
	last  time.Time
}

const (
	// freeGuesses is how many wrong passwords of one address within guessWindow
	// cost nothing but what their connection makes of them: an office behind one
	// address may mistype now and then.
	freeGuesses = 20
	guessWindow = time.Minute
	// maxGuessers bounds the memory. Beyond it all are forgotten.
	maxGuessers = 10000
)

// add counts a wrong password and returns how many there were beyond the free
// ones.
func (g *guesses) add(addr net.Addr, now time.Time) int {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		return 0
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.by == nil || len(g.by) >= maxGuessers {
		g.by = make(map[string]*guesser)
	}
	who := g.by[string(tcp.IP)]
	if who == nil {
		who = &guesser{}
		g.by[string(tcp.IP)] = who
	}
	if now.Sub(who.last) > guessWindow {
		who.count = 0
	}
	who.count++
	who.last = now
	return max(0, who.count-freeGuesses)
}
