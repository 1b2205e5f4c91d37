package pubsub

// subscriptionBytes is an estimate of the memory of a subscription, without the
// two copies of its name.
const subscriptionBytes = 400

func subscriptionSize(name string) int { return subscriptionBytes + 2*len(name) }

// Reserve charges the node for new subscriptions or prefixes. It returns false
// if they would exceed the limit.
func (h *Hub) Reserve(bytes int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if limit := h.cfg.MaxBytes; limit > 0 && h.bytes+bytes > limit {
		return false
	}
	h.bytes += bytes
	return true
}

// Release returns bytes that Reserve has charged.
func (h *Hub) Release(bytes int) {
	h.mu.Lock()
	h.bytes -= bytes
	h.mu.Unlock()
}
