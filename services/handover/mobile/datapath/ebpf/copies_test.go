package ebpf

import (
	"encoding/binary"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/handover/mobile/datapath"
)

// TestCopiesModel lets random packets, some of them retransmitted by their sender, come in by
// three interfaces in random order. Each is delivered as often as by the interface that has
// brought it most often, and never more often.
func TestCopiesModel(t *testing.T) {
	const interfaces, packets = 3, 4
	var macs [interfaces]openflow.MAC
	for i := range macs {
		macs[i] = openflow.MAC{2, 0, 0, 0, 0, byte(2 + i)}
	}
	s, first := loaded(t, macs[0])
	receive := map[int]interface {
		Test([]byte) (uint32, []byte, error)
	}{0: first}
	for i := 1; i < interfaces; i++ {
		p, err := s.loadReceiver(datapath.Interface{Name: "more", MAC: macs[i]}, uint32(i))
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		receive[i] = p
	}
	if err := s.maps.Choices.Put(uint32(0), datapathChoice{Receive: 1<<interfaces - 1, Merge: 1}); err != nil {
		t.Fatal(err)
	}
	turn := uint32(0)
	rapid.Check(t, func(t *rapid.T) {
		turn++ // distinguishes the packets of one check from those of the others
		var brought [packets][interfaces]int
		var delivered [packets]int
		for range rapid.IntRange(1, 60).Draw(t, "arrivals") {
			packet, by := rapid.IntRange(0, packets-1).Draw(t, "packet"), rapid.IntRange(0, interfaces-1).Draw(t, "by")
			in := frameOf(openflow.MAC{2, 9, 9, 9, 9, 9}, macs[by])
			binary.BigEndian.PutUint32(in[42:], turn)
			in[46] = byte(packet)
			in[15], in[22], in[24] = byte(by), byte(64-by), byte(by) // ECN, TTL and checksum may change in transit
			verdict, _, err := receive[by].Test(in)
			if err != nil {
				t.Fatal(err)
			}
			brought[packet][by]++
			if verdict == redirected {
				delivered[packet]++
			}
			want := 0
			for _, n := range brought[packet] {
				want = max(want, n)
			}
			if delivered[packet] != want {
				t.Fatalf("packet %d was brought %v times and delivered %d times", packet, brought[packet], delivered[packet])
			}
		}
	})
}
