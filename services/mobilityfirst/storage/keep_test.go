package storage

import (
	"testing"

	"github.com/sluice-net/sluice/services/mobilityfirst/custody"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
)

// Any number of names leaves half of the room to the senders that the operator has named.
func TestManyNamesLeaveRoom(t *testing.T) {
	known := frame.GUID{1}
	n, err := New(Options{Dir: t.TempDir(), Size: MinSize, Known: []frame.GUID{known}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = n.store.Close() }()
	const chunk = 1 << 20
	fill := func(sender frame.GUID) (kept int64) {
		for number := uint64(0); n.checkRoom(custody.ID{Source: sender, Number: number}, chunk) == nil; number++ {
			n.use(sender, chunk)
			kept += chunk
		}
		return kept
	}
	for name := range byte(200) {
		fill(frame.GUID{2, name})
	}
	if n.usedByOthers != MinSize/othersShare {
		t.Errorf("200 names use %d bytes, want %d", n.usedByOthers, MinSize/othersShare)
	}
	if kept := fill(known); kept < MinSize/othersShare/senderShare {
		t.Errorf("a known sender may use %d bytes beside 200 others, want at least %d", kept, MinSize/othersShare/senderShare)
	}
	for name := range byte(200) {
		n.use(frame.GUID{2, name}, -n.perSender[frame.GUID{2, name}])
	}
	if n.usedByOthers != 0 || n.used != n.perSender[known] {
		t.Errorf("%d bytes are counted when others have none, %d of them of others", n.used, n.usedByOthers)
	}
}
