// Icons: strokes in a square of 20.

const SHAPES = {
  close: 'M5 5l10 10M15 5 5 15', folder: 'M2.5 15.5v-11h5l2 2.5h8v8.5z',
  film: 'M2.5 4h15v12h-15zM6 4v12M14 4v12M2.5 10H6M14 10h3.5', image: 'M2.5 4h15v12h-15zM3 14.5 7.5 9l3.5 4 2-2 4 4',
  drop: 'M10 3v9M6.5 8.5 10 12l3.5-3.5M3 13v3.5h14V13', up: 'm5 11 5-5 5 5M10 6v9', down: 'm5 9 5 5 5-5M10 14V5',
  back: 'm12 5-5 5 5 5', next: 'm8 5 5 5-5 5', pause: 'M6.5 4v12M13.5 4v12', play: 'M7 4.5 15.5 10 7 15.5z',
  stop: 'M4.5 4.5h11v11h-11z', retry: 'M15.5 8.5A6 6 0 1 0 16 11M16 4.5v4h-4',
  compare: 'M2.5 4h15v12h-15zM10 2v16M12.5 7.5v5M15 7.5v5', bin: 'M3.5 5.5h13M8 5V3h4v2M5 5.5l1 11.5h8l1-11.5',
  expand: 'M3.5 8V3.5H8M12 3.5h4.5V8M16.5 12v4.5H12M8 16.5H3.5V12', warning: 'M10 3 2.5 16.5h15zM10 8.5v4M10 14.5v.2',
  check: 'm4 10.5 4 4 8-9', grip: 'm7.5 6-4 4 4 4M12.5 6l4 4-4 4',
  auto: 'M10 3a7 7 0 1 0 0 14 7 7 0 0 0 0-14v14M12.5 4v12M14.5 5.5v9',
  dark: 'M16.5 12.5A7 7 0 0 1 7.5 3.5a7 7 0 1 0 9 9z',
  light: 'M10 6.5a3.5 3.5 0 1 0 0 7 3.5 3.5 0 0 0 0-7M10 2v2M10 16v2M2 10h2M16 10h2M4.3 4.3l1.5 1.5M14.2 14.2l1.5 1.5'
    + 'M15.7 4.3l-1.5 1.5M5.8 14.2l-1.5 1.5',
};

export function icon(name) {
  const svg = document.getElementById('icon').content.firstElementChild.cloneNode(true);
  svg.firstElementChild.setAttribute('d', SHAPES[name]);
  return svg;
}

for (const place of document.querySelectorAll('[data-icon]')) place.replaceWith(icon(place.dataset.icon));
