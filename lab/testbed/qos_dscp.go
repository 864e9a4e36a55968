package testbed

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// SeenDSCP sends UDP packets with a DSCP and counts the DSCPs with which they arrive.
func SeenDSCP(ctx context.Context, from, to Inside, dst netip.AddrPort, dscp uint8, packets int) (map[uint8]int, error) {
	in, err := packetConn(to, dst, unix.IP_RECVTOS, 1)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	out, err := packetConn(from, netip.AddrPortFrom(netip.IPv4Unspecified(), 0), unix.IP_TOS, int(dscp)<<2)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for range packets {
		if _, err := out.WriteToUDPAddrPort(make([]byte, 64), dst); err != nil {
			return nil, fmt.Errorf("send with DSCP %d: %w", dscp, err)
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-tick.C:
		}
	}
	return countDSCP(in, packets)
}

// countDSCP reads packets until all have arrived, or none has for a while.
func countDSCP(in *net.UDPConn, packets int) (map[uint8]int, error) {
	seen := map[uint8]int{}
	data, control := make([]byte, 2048), make([]byte, 256)
	for range packets {
		if err := in.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
			return nil, err
		}
		_, n, _, _, err := in.ReadMsgUDPAddrPort(data, control)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return seen, nil
		}
		if err != nil {
			return nil, err
		}
		messages, err := unix.ParseSocketControlMessage(control[:n])
		if err != nil {
			return nil, err
		}
		for _, m := range messages {
			if m.Header.Type == unix.IP_TOS && len(m.Data) > 0 {
				seen[m.Data[0]>>2]++
			}
		}
	}
	return seen, nil
}

// packetConn opens a UDP socket and sets a socket option of the level IPPROTO_IP.
func packetConn(n Inside, at netip.AddrPort, option, value int) (c *net.UDPConn, err error) {
	err = n.Do(func() error {
		c, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(at))
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := setOption(c, unix.IPPROTO_IP, option, value); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}
