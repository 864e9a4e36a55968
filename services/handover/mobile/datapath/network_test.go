package datapath_test

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"

	cebpf "github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/openflow"
)

// access is a network to which the device is attached at two places. It sends everything for the
// device to both, each time to the address it is known by there, and accepts packets from either,
// like the mobility network while a device moves.
type access struct {
	*device
	server *space
}

var (
	serverMAC = peerMAC
	ownNet    = netip.PrefixFrom(own4, 24)
	serverNet = netip.PrefixFrom(peer4, 24)
)

// newAccess places a server behind the device's two access points; both selects whether packets
// for the device go to both or to the first only.
func newAccess(t testing.TB, both bool) *access {
	t.Helper()
	a := &access{device: newDevice(t), server: newSpace(t)}
	pair(t, a.server, "srv", serverMAC, a.world, "core", apMAC)
	a.server.address(t, "srv", serverNet, own4, vniMAC)
	a.world.must(t, func() error {
		index := map[string]int{}
		for _, name := range []string{"core", "ap-" + wifi, "ap-" + lte} {
			link, err := netlink.LinkByName(name)
			if err != nil {
				return err
			}
			index[name] = link.Attrs().Index
		}
		down := asm.Instructions{asm.Mov.Reg(asm.R6, asm.R1)}
		if both {
			down = append(down, storeMAC(0, lteMAC)...)
			down = append(down, asm.Mov.Reg(asm.R1, asm.R6), asm.Mov.Imm(asm.R2, int32(index["ap-"+lte])), asm.Mov.Imm(asm.R3, 0), asm.FnCloneRedirect.Call())
		}
		down = append(down, storeMAC(0, wifiMAC)...)
		down = append(down, redirect(index["ap-"+wifi])...)
		up := asm.Instructions{asm.Mov.Reg(asm.R6, asm.R1)}
		up = append(up, storeMAC(6, vniMAC)...)
		up = append(up, redirect(index["core"])...)
		for name, program := range map[string]asm.Instructions{"core": down, "ap-" + wifi: up, "ap-" + lte: up} {
			if err := atIngress(t, index[name], program); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		return nil
	})
	return a
}

// storeMAC returns instructions that write an address into the frame, whose context is in R6.
func storeMAC(offset int32, mac openflow.MAC) asm.Instructions {
	return asm.Instructions{
		asm.StoreImm(asm.RFP, -8, int64(int32(binary.LittleEndian.Uint32(mac[:4]))), asm.Word),
		asm.StoreImm(asm.RFP, -4, int64(binary.LittleEndian.Uint16(mac[4:])), asm.Half),
		asm.Mov.Reg(asm.R1, asm.R6), asm.Mov.Imm(asm.R2, offset),
		asm.Mov.Reg(asm.R3, asm.RFP), asm.Add.Imm(asm.R3, -8),
		asm.Mov.Imm(asm.R4, 6), asm.Mov.Imm(asm.R5, 0), asm.FnSkbStoreBytes.Call(),
	}
}

func redirect(index int) asm.Instructions {
	return asm.Instructions{
		asm.Mov.Imm(asm.R1, int32(index)), asm.Mov.Imm(asm.R2, 0), asm.FnRedirect.Call(), asm.Return(),
	}
}

// atIngress attaches a program of the tests' own to an interface.
func atIngress(t testing.TB, index int, program asm.Instructions) error {
	p, err := cebpf.NewProgram(&cebpf.ProgramSpec{Name: "access", Type: cebpf.SchedCLS, Instructions: program})
	if err != nil {
		t.Skipf("the tests' network needs eBPF: %v", err)
	}
	defer p.Close()
	qdisc := &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
	}}
	if err := netlink.QdiscAdd(qdisc); err != nil {
		return err
	}
	return netlink.FilterAdd(&netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: index, Parent: netlink.HANDLE_MIN_INGRESS, Handle: 1, Protocol: unix.ETH_P_ALL, Priority: 1,
		},
		Fd: p.FD(), Name: "access", DirectAction: true,
	})
}
