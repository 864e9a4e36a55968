package network

import (
	"testing"

	"github.com/sluice-net/sluice/openflow"
)

func TestMessagesAreCounted(t *testing.T) {
	var b []byte
	for _, m := range []openflow.Message{&openflow.EchoRequest{Data: []byte("payload")}, &openflow.BarrierRequest{}, &openflow.EchoRequest{}} {
		var err error
		if b, err = m.AppendTo(b, 1); err != nil {
			t.Fatal(err)
		}
	}
	var c messageCounts
	c.addAll(b)
	c.addAll([]byte{4, byte(openflow.TypeHello), 0, 0, 0, 0, 0, 0, 4}) // no length, and no whole header
	c.addAll([]byte{4, openflow.NumTypes, 0, 8, 0, 0, 0, 0})
	want := Messages{openflow.TypeHello: 1, openflow.TypeEchoRequest: 2, openflow.TypeBarrierRequest: 1}
	if got := c.read(); got != want {
		t.Errorf("%v, want %v", got, want)
	}
}
