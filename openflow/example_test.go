package openflow_test

import (
	"fmt"
	"net/netip"

	"github.com/sluice-net/sluice/openflow"
)

func ExampleNewMatch() {
	server := netip.MustParseAddr("10.0.0.9")
	_, err := openflow.NewMatch(openflow.IPDst(server), openflow.TCPDst(80))
	fmt.Println(err)
	match, err := openflow.NewMatch(openflow.EthType(0x0800), openflow.IPProto(6), openflow.IPDst(server), openflow.TCPDst(80))
	fmt.Println(match, err)
	// Output:
	// openflow: bad match: ip_dst=10.0.0.9 needs eth_type=0x800
	// eth_type=0x0800,ip_proto=6,ip_dst=10.0.0.9,tcp_dst=80 <nil>
}

func ExampleFlowMod() {
	match := openflow.MustMatch(openflow.InPort(1), openflow.VLANVID(10))
	add := openflow.NewFlowMod(openflow.FlowAdd, 0, 100, match,
		openflow.ApplyActions(openflow.PopVLAN(), openflow.Output(2)))
	fmt.Println(add)

	// Several messages become one write.
	var batch []byte
	batch, err := add.AppendTo(batch, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	batch, err = (&openflow.BarrierRequest{}).AppendTo(batch, 2)
	fmt.Println(len(batch), err)
	// Output:
	// FLOW_MOD add table=0 priority=100 cookie=0x0 match={in_port=1,vlan_vid=10} apply_actions(pop_vlan,output:2)
	// 112 <nil>
}

func ExampleDecode() {
	refusal := []byte{4, 1, 0, 12, 0, 0, 0, 7, 0, 5, 0, 1}
	h, m, err := openflow.Decode(refusal)
	fmt.Println(h.XID, m.String(), err)

	_, _, err = openflow.Decode([]byte{4, 0, 0, 16, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 16})
	fmt.Println(err)
	// Output:
	// 7 ERROR OFPFMFC_TABLE_FULL data= (0 bytes) <nil>
	// openflow: hello element at byte 0: bad length: 0, below the header's 4
}
