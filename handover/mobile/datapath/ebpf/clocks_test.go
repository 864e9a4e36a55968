package ebpf

import (
	"encoding/binary"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-net/sluice/handover/mobile/datapath"
	"github.com/sluice-net/sluice/openflow"
)

// TestCopyOfLaterClock brings a packet by two interfaces, of which the first noted
// a later time than the second: two processors each read the clock before they look
// for the packet, and the one that has read it first may look last.
func TestCopyOfLaterClock(t *testing.T) {
	macs := [2]openflow.MAC{{2, 0, 0, 0, 0, 2}, {2, 0, 0, 0, 0, 3}}
	s, first := loaded(t, macs[0])
	second, err := s.loadReceiver(datapath.Interface{Name: "more", MAC: macs[1]}, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	if err := s.Choices.Put(uint32(0), choice{Receive: 3, Merge: 1}); err != nil {
		t.Fatal(err)
	}
	gateway := openflow.MAC{2, 9, 9, 9, 9, 9}
	if verdict, _, err := first.Test(frameOf(gateway, macs[0])); err != nil || verdict != redirected {
		t.Fatalf("the packet: verdict %d, %v", verdict, err)
	}
	var key uint64
	var remembered []byte // struct copies, which begins with the time
	if all := s.Seen.Iterate(); !all.Next(&key, &remembered) {
		t.Fatalf("the packet is not remembered: %v", all.Err())
	}
	binary.NativeEndian.PutUint64(remembered, binary.NativeEndian.Uint64(remembered)+uint64(time.Second))
	if err := s.Seen.Put(key, remembered); err != nil {
		t.Fatal(err)
	}
	if verdict, _, err := second.Test(frameOf(gateway, macs[1])); err != nil || verdict == redirected {
		t.Errorf("its copy is delivered as well: verdict %d, %v", verdict, err)
	}
}

// age makes the one packet that is remembered older.
func age(t *testing.T, s *shared, by time.Duration) {
	t.Helper()
	var key uint64
	var remembered []byte
	if all := s.Seen.Iterate(); !all.Next(&key, &remembered) {
		t.Fatalf("no packet is remembered: %v", all.Err())
	}
	binary.NativeEndian.PutUint64(remembered, binary.NativeEndian.Uint64(remembered)-uint64(by))
	if err := s.Seen.Put(key, remembered); err != nil {
		t.Fatal(err)
	}
}

// TestLateCopy brings a packet again after a second. By the interface that was left it
// is a copy that was held up; by the one in use it is sent again.
func TestLateCopy(t *testing.T) {
	for _, inUse := range []uint32{0, 1} {
		macs := [2]openflow.MAC{{2, 0, 0, 0, 0, 2}, {2, 0, 0, 0, 0, 3}}
		s, first := loaded(t, macs[0])
		second, err := s.loadReceiver(datapath.Interface{Name: "more", MAC: macs[1]}, 1)
		if err != nil {
			t.Fatal(err)
		}
		defer second.Close()
		if err := s.Choices.Put(uint32(0), choice{Slot: inUse, Receive: 3, Merge: 1}); err != nil {
			t.Fatal(err)
		}
		gateway := openflow.MAC{2, 9, 9, 9, 9, 9}
		if verdict, _, err := first.Test(frameOf(gateway, macs[0])); err != nil || verdict != redirected {
			t.Fatalf("the packet: verdict %d, %v", verdict, err)
		}
		age(t, s, time.Second)
		if verdict, _, err := second.Test(frameOf(gateway, macs[1])); err != nil || (verdict == redirected) != (inUse == 1) {
			t.Errorf("interface %d is in use, the second brings the packet a second later: verdict %d, %v", inUse, verdict, err)
		}
	}
}

// TestCopiesAtOnceAfterLong has two processors bring copies of a packet that came long
// ago as well: one of them is delivered.
func TestCopiesAtOnceAfterLong(t *testing.T) {
	macs := [2]openflow.MAC{{2, 0, 0, 0, 0, 2}, {2, 0, 0, 0, 0, 3}}
	s, first := loaded(t, macs[0])
	second, err := s.loadReceiver(datapath.Interface{Name: "more", MAC: macs[1]}, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	if err := s.Choices.Put(uint32(0), choice{Receive: 3, Merge: 1}); err != nil {
		t.Fatal(err)
	}
	gateway := openflow.MAC{2, 9, 9, 9, 9, 9}
	if _, _, err := first.Test(frameOf(gateway, macs[0])); err != nil {
		t.Fatal(err)
	}
	for i := range 5000 {
		age(t, s, time.Minute)
		var delivered atomic.Int32
		var both sync.WaitGroup
		bring := func(p interface {
			Test([]byte) (uint32, []byte, error)
		}, to openflow.MAC,
		) {
			both.Go(func() {
				if verdict, _, err := p.Test(frameOf(gateway, to)); err == nil && verdict == redirected {
					delivered.Add(1)
				}
			})
		}
		bring(first, macs[0])
		bring(second, macs[1])
		both.Wait()
		if delivered.Load() != 1 {
			t.Fatalf("copies %d were delivered %d times", i, delivered.Load())
		}
	}
}
