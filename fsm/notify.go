package fsm

// notify emits a keyspace notification for a key. class is its letter in
// notify-keyspace-events. Commands call notify at the same points as Redis
// does.
func (c *Ctx) notify(class, event, key string) {
	n := c.m.notices
	if n == 0 || !c.wants(EventKeyspace) || n&noticeOf(class[0]) == 0 || n&(noticeKeyspace|noticeKeyevent) == 0 {
		return
	}
	c.emit(Event{Kind: EventKeyspace, Class: class[0], Name: event, Key: key,
		Keyspace: n&noticeKeyspace != 0, Keyevent: n&noticeKeyevent != 0})
}

// notices is the set of notifications that notify-keyspace-events selects.
type notices uint32

// These are the letters of notify-keyspace-events, in the order in which Redis
// prints them. 'A' stands for all classes except misses and new keys.
const (
	noticeLetters = "g$lshzxetdnKEm"

	noticeKeyspace notices = 1 << 11
	noticeKeyevent notices = 1 << 12
	noticeAll      notices = 1<<10 - 1 // g$lshzxetd
)

// noticeOf returns the bit of a letter, 0 for an unknown letter.
func noticeOf(letter byte) notices {
	for i := range len(noticeLetters) {
		if noticeLetters[i] == letter {
			return 1 << i
		}
	}
	return 0
}

// parseNotices parses a value of notify-keyspace-events.
func parseNotices(value string) (n notices, ok bool) {
	for i := range len(value) {
		bit := noticeOf(value[i])
		if value[i] == 'A' {
			bit = noticeAll
		}
		if bit == 0 {
			return 0, false
		}
		n |= bit
	}
	return n, true
}

// String prints the set as CONFIG GET does.
func (n notices) String() string {
	s, from := "", 0
	if n&noticeAll == noticeAll {
		s, from = "A", len("g$lshzxetdn") // Redis omits 'n' after 'A' too
	}
	for i := from; i < len(noticeLetters); i++ {
		if n&(1<<i) != 0 {
			s += noticeLetters[i : i+1]
		}
	}
	return s
}
