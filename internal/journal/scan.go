package journal

import "fmt"

// Scan calls fn with every record of a journal from its files alone, in order, whether
// or not somebody has it open. It checks what [Verify] checks, but for signatures, before the
// first call. An error of fn ends it and is returned as it is.
func Scan(dir string, fn func(seq int64, rec []byte) error) error {
	var s survey
	if err := s.run(dir); err != nil {
		return fmt.Errorf("scan journal: %w", err)
	}
	for _, seg := range s.segments {
		if err := seg.read(dir, seg.first, fn); err != nil {
			return err
		}
	}
	return nil
}
