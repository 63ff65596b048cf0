const themeButton = document.getElementById("theme");
const darkNow = () => {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
};
const nameTheme = () => { themeButton.textContent = darkNow() ? "Light" : "Dark"; };
themeButton.addEventListener("click", () => {
  document.documentElement.dataset.theme = darkNow() ? "light" : "dark";
  nameTheme();
  document.dispatchEvent(new Event("theme"));
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  nameTheme();
  document.dispatchEvent(new Event("theme"));
});
nameTheme();
