package sim

import "context"

// UserHandler makes a handler of a function that somebody else wrote. do reaches the
// provider: it does the named deed, once more each time it is called.
func UserHandler(fn func(ctx context.Context, message string, do func(ctx context.Context, deed string) error) error) *Handler {
	return &Handler{Name: "user", Does: "whatever it does", run: func(h *hand) error {
		return fn(h.ctx, messageID(h.j.msg), func(ctx context.Context, deed string) error {
			_, err := h.send(ctx, &send{intent: "deed", name: deed})
			return err
		})
	}}
}

// EverywhereFaults are those under which a user's handler is tried at every yield.
var EverywhereFaults = Faults(CrashBefore, CrashAfter, LostAck, StoreError, TimeoutAfter, LateSend, PauseDeadline)
