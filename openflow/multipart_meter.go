package openflow

import "fmt"

// MeterStats counts the packets of a meter and of its bands.
type MeterStats struct {
	Meter uint32
	Flows uint32 // entries that use it
	Counter
	Duration Duration
	Bands    []Counter
}

const meterStatsHeader = 40

// MeterStatsReply answers a MeterStatsRequest.
type MeterStatsReply []MeterStats

// MultipartType returns MultipartMeter.
func (*MeterStatsReply) MultipartType() MultipartType { return MultipartMeter }

func (r *MeterStatsReply) append(b []byte) ([]byte, error) {
	for _, m := range *r {
		start := len(b)
		b = pad(put32(b, m.Meter), 8)
		b = put64(put64(put32(b, m.Flows), m.Packets), m.Bytes)
		b = appendCounters(m.Duration.append(b), m.Bands)
		setLen16(b, start, 4)
	}
	return b, nil
}

func (r *MeterStatsReply) decode(b []byte) error {
	it := iterate(b, &meterStatsShape)
	for it.step() {
		e := it.elem
		bands, err := parseRecords("band counter", e[meterStatsHeader:], counterSize, parseCounter)
		if err != nil {
			return err
		}
		*r = append(*r, MeterStats{
			Meter: be.Uint32(e), Flows: be.Uint32(e[12:]), Counter: parseCounter(e[16:]),
			Duration: parseDuration(e[32:]), Bands: bands,
		})
	}
	return it.err
}

// String describes the meter's counters.
func (m MeterStats) String() string {
	return fmt.Sprintf("meter=%s flows=%d packets=%s bytes=%s duration=%v%s", meterName(m.Meter), m.Flows,
		count(m.Packets), count(m.Bytes), m.Duration, counterList("band", m.Bands))
}

// String describes the body.
func (r *MeterStatsReply) String() string { return list(*r) }

// MeterConfig describes a meter.
type MeterConfig struct {
	Flags uint16
	Meter uint32
	Bands []MeterBand
}

// MeterConfigReply answers a MeterConfigRequest.
type MeterConfigReply []MeterConfig

// MultipartType returns MultipartMeterConfig.
func (*MeterConfigReply) MultipartType() MultipartType { return MultipartMeterConfig }

func (r *MeterConfigReply) append(b []byte) ([]byte, error) {
	for _, m := range *r {
		start := len(b)
		b = put32(put16(pad(b, 2), m.Flags), m.Meter)
		b = appendBands(b, m.Bands)
		setLen16(b, start, 0)
	}
	return b, nil
}

func (r *MeterConfigReply) decode(b []byte) error {
	it := iterate(b, &meterConfigShape)
	for it.step() {
		bands, err := parseBands(it.elem[8:])
		if err != nil {
			return err
		}
		*r = append(*r, MeterConfig{Flags: be.Uint16(it.elem[2:]), Meter: be.Uint32(it.elem[4:]), Bands: bands})
	}
	return it.err
}

// String describes the meter.
func (m MeterConfig) String() string {
	return fmt.Sprintf("meter=%s flags=%s%s", meterName(m.Meter), bitNames(uint64(m.Flags), meterFlagNames), bandList(m.Bands))
}

// String describes the body.
func (r *MeterConfigReply) String() string { return list(*r) }

// MeterFeatures describes the meters that a switch supports.
type MeterFeatures struct {
	MaxMeter     uint32
	BandTypes    uint32 // bits by BandType
	Capabilities uint32 // bits as in the flags of a meter
	MaxBands     uint8
	MaxColor     uint8
}

// MultipartType returns MultipartMeterFeatures.
func (*MeterFeatures) MultipartType() MultipartType { return MultipartMeterFeatures }

func (m *MeterFeatures) append(b []byte) ([]byte, error) {
	b = put32(put32(put32(b, m.MaxMeter), m.BandTypes), m.Capabilities)
	return append(b, m.MaxBands, m.MaxColor, 0, 0), nil
}

func (m *MeterFeatures) decode(b []byte) error {
	if err := exactly("meter features", b, 16); err != nil {
		return err
	}
	*m = MeterFeatures{be.Uint32(b), be.Uint32(b[4:]), be.Uint32(b[8:]), b[12], b[13]}
	return nil
}

// String describes the body.
func (m *MeterFeatures) String() string {
	return fmt.Sprintf("max_meter=%d band_types=%s capabilities=%s max_bands=%d max_color=%d", m.MaxMeter,
		bitNames(uint64(m.BandTypes), []string{"", "drop", "dscp_remark"}), bitNames(uint64(m.Capabilities), meterFlagNames), m.MaxBands, m.MaxColor)
}
