package dhcp

// MaxStamps is the bound of what is remembered of one device.
const MaxStamps = maxStamps

// Remembered returns how many signatures of the device are remembered, or -1 if there is no entry
// for it.
func (s *Server) Remembered(device string) int {
	s.guard.mu.Lock()
	defer s.guard.mu.Unlock()
	d := s.guard.devices[device]
	if d == nil {
		return -1
	}
	return len(d.list)
}
