// The settings that a user can choose: names, defaults and words are those of the command line.

const TARGETS = {
  'scale:2': '2×', 'scale:3': '3×', 'scale:4': '4×', 'scale:1': 'Same size',
  'resolution:720p': '720p', 'resolution:1080p': '1080p', 'resolution:1440p': '1440p', 'resolution:4k': '4K',
};
const TARGET_KEYS = ['scale', 'resolution', 'size'];

export const GROUPS = [
  ['Restoration', [
    {
      name: 'color', label: 'Colour correction',
      options: {
        '': 'Automatic', lab: 'Lab', wavelet: 'Wavelet', 'wavelet-adaptive': 'Adaptive wavelet', hsv: 'HSV',
        adain: 'AdaIN', none: 'None',
      },
    },
    { name: 'strength', label: 'Strength', number: [0, 1, 0.01], empty: 'automatic',
      hint: '0 is most faithful to the input, 1 cleans most' },
    { name: 'seed', label: 'Seed', number: [0, Number.MAX_SAFE_INTEGER, 1], empty: '42' },
  ]],
  ['Frames', [
    { name: 'batch_size', label: 'Frames per batch', number: [1, 999, 1], empty: '5',
      hint: 'More frames at a time are steadier and need more memory' },
    { name: 'overlap', label: 'Overlap', number: [0, 99, 1], empty: '1',
      hint: 'Frames that neighbouring batches share' },
    { name: 'start', label: 'Start', empty: '0:00', hint: 'Seconds, or h:m:s' },
    { name: 'end', label: 'End', empty: 'end', hint: 'Seconds, or h:m:s' },
    {
      name: 'deinterlace', label: 'Deinterlace',
      options: { '': 'Automatic', off: 'Off', bob: 'Every field', single: 'Every other field', ivtc: '3:2 pulldown' },
    },
    { name: 'no_shot_detection', label: 'Detect shots', inverted: true },
  ]],
  ['Output', [
    {
      name: 'codec', label: 'Codec',
      options: { '': 'Automatic', h264: 'H.264', hevc: 'HEVC', av1: 'AV1', ffv1: 'FFV1 (lossless)', prores: 'ProRes' },
    },
    { name: 'crf', label: 'Quality (CRF)', number: [0, 63, 1], empty: 'automatic', hint: 'Lower is better and larger' },
    { name: 'no_audio', label: 'Audio', inverted: true },
    { name: 'no_subtitles', label: 'Subtitles', inverted: true },
    { name: 'no_chapters', label: 'Chapters', inverted: true },
    { name: 'no_metadata', label: 'Titles and tags', inverted: true },
  ]],
];

export const FIELDS = GROUPS.flatMap(([, fields]) => fields);

// The size of the output as one value, such as `scale:2`.
export function targetOf(values) {
  const key = TARGET_KEYS.find((name) => values[name] !== undefined && values[name] !== null);
  return key ? `${key}:${String(values[key]).toLowerCase()}` : 'scale:2';
}

function targetName(value) {
  const [key, size] = value.split(':');
  return TARGETS[value] || (key === 'scale' ? `${size}×` : size);
}

export const targets = (current) => (TARGETS[current] ? TARGETS : { ...TARGETS, [current]: targetName(current) });

// A size replaces whatever size was chosen before.
export function targetValues(value) {
  const [key, size] = value.split(':');
  const others = Object.fromEntries(TARGET_KEYS.map((name) => [name, null]));
  return { ...others, [key]: key === 'scale' ? Number(size) : size };
}

// What is in force: the preset, then what was changed. Null means that the setting has its default again.
export function inForce(choice, presets) {
  const preset = presets.find(({ name }) => name === choice.preset);
  const { changed } = choice;
  const sized = TARGET_KEYS.some((name) => changed[name] !== undefined);
  const own = Object.entries(preset?.settings || {}).filter(([name]) => !sized || !TARGET_KEYS.includes(name));
  const values = { ...Object.fromEntries(own), ...changed };
  return { model: choice.model ?? preset?.model ?? null, values };
}

export function asRequest(choice, presets) {
  const { model, values } = inForce(choice, presets);
  const settings = Object.fromEntries(Object.entries(values).filter(([, value]) => value !== null));
  if (settings.deinterlace === 'ivtc') {
    delete settings.deinterlace;
    settings.ivtc = true;
  }
  return model ? { model, settings } : { settings };
}
