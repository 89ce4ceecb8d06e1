package ledger

import (
	"fmt"

	"github.com/fencedrun/fencedrun/fence"
)

// homeOf decodes a directory entry.
func homeOf(h Home) (fence.Home, error) {
	home := fence.Home{Known: true, Found: h.Found, Where: h.Conversation}
	if h.Found && h.Conversation == "" && len(h.Tombstone) > 0 {
		if err := decode(h.Tombstone, &home.Tombstone); err != nil {
			return home, fmt.Errorf("%w: tombstone: %w", ErrCorrupt, err)
		}
	}
	return home, nil
}

// was is the directory entry that the operation decided on.
func (op *operation) was() Home {
	h := op.c.view.Home
	return Home{Found: h.Found, Conversation: h.Where}
}
