/**
 * What the server-rendered pages do more with JavaScript: a button that copies, and no second press of one that has sent its form.
 * Everything works without it.
 */
for (const button of document.querySelectorAll<HTMLButtonElement>('button[data-copy]')) {
  const source = document.getElementById(button.dataset['copy'] ?? '');
  if (!(source instanceof HTMLTextAreaElement)) continue;
  button.hidden = false;
  button.addEventListener('click', () => {
    source.select();
    navigator.clipboard.writeText(source.value).then(
      () => { button.textContent = 'Copied'; },
      // Without the permission the text is selected: the person copies it by hand.
      () => { button.textContent = 'Press Ctrl+C to copy'; },
    );
  });
}

/** A form that has been sent is not sent again, unless the page comes back from the browser's history. */
let sent: HTMLFormElement | undefined;
document.addEventListener('submit', (event) => {
  if (!(event.target instanceof HTMLFormElement)) return;
  if (sent === event.target) event.preventDefault();
  sent = event.target;
});
addEventListener('pageshow', () => { sent = undefined; });
export {};
