package packet

// CompleteChecksum completes the transport checksum of a frame whose sender has left it to the
// network card: such a frame contains the sum of the pseudo-header alone. It reports whether it
// has changed the frame. It leaves any other checksum as it is, even a wrong one, so that
// receivers still recognise damaged frames.
func CompleteChecksum(frame []byte, h *Headers) bool {
	at := 0
	switch {
	case h.Has(TCP):
		at = h.L4 + 16
	case h.Has(UDP):
		at = h.L4 + 6
	}
	if at == 0 || h.IsFragment() || h.End > len(frame) || at+2 > h.End {
		return false
	}
	segment := frame[h.L4:h.End]
	addresses := pseudoHeader(h.Src, h.Dst, h.Proto, len(segment))
	if be.Uint16(frame[at:]) != ^Checksum(addresses) || Checksum(Sum(segment, addresses)) == 0 {
		return false
	}
	be.PutUint16(frame[at:], 0)
	check := Checksum(Sum(segment, addresses))
	if check == 0 && h.Has(UDP) { // zero means that there is no checksum
		check = 0xffff
	}
	be.PutUint16(frame[at:], check)
	return true
}
